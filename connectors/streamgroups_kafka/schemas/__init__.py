"""Messages of Kafka's protocol that ``kafka.protocol`` does not know yet, in its own format: field, type, versions.

Read by ``kafka.protocol`` when ``groups`` names the messages. Source: KIP-848.
"""
