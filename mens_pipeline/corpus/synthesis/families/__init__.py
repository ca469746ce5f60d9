"""Families of templates, as files in this folder; `docs/data.md` explains how to add one."""
