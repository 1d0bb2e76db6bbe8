"""Dead letters in Spark: the column that steps add to a DataFrame."""
