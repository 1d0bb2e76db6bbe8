"""Columns and types of DataFrames, for the steps of the API."""
