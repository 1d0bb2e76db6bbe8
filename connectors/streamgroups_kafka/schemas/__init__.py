"""Messages of Kafka's protocol that ``kafka.protocol`` does not contain yet, in its format: field, type, versions.

Loaded by ``kafka.protocol`` for the messages that ``groups`` declares. Source: KIP-848.
"""
