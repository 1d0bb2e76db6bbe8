"""The requests and replies between the processes of a Spark session."""
