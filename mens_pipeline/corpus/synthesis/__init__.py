"""Programs that nobody wrote: tasks, templates and combinations, all judged by the front end."""
