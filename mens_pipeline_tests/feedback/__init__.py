"""Tests of learning from judged answers."""
