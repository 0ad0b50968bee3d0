"""Uses: what is made of tasks. Each turns its arguments into inputs of one task, and the rows into its own result."""
