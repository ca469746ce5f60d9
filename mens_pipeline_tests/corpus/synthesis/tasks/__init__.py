"""Tests of executable tasks."""
