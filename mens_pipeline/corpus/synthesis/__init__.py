"""Programs that nobody wrote: templates, combinations, mutations and repairs, all judged by the front end."""
