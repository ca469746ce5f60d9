"""Programs that nobody wrote: tasks, templates and combinations, all checked by the front end."""
