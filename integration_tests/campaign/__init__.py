"""Campaigns: faults in running queries and processors, and the check of their histories and outputs.

``python -m integration_tests.campaign`` runs queries, ``python -m integration_tests.campaign.processors`` an instance.
"""
