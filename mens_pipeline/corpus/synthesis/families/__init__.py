"""Every family of templates; they are files beside this one, and `docs/data.md` says how to add to them."""
