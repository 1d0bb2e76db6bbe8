"""Supervision, metrics and checks of running queries."""
