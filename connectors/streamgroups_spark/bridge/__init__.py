"""How facts travel between the processes of Spark."""
