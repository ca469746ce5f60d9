"""Tests of templates of programs."""
