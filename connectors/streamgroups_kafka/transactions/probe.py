"""Probes whether the user of a Kafka connection may write in transactions, for ``streamgroups connections test``.

Source: KIP-98: a producer id is assigned only to a user with Write on the transactional id.
"""

from __future__ import annotations

from contextlib import closing

from streamgroups.doctor.check_results import CheckResult, ok, problem
from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.properties_file import as_in_a_file
from streamgroups_kafka.transactions.coordinator import Transactions

_TIMEOUT_S = 10.0


def probe_transaction(config: ClientConfig, transactional_id: str) -> CheckResult:
    """Begins a transaction without records, and aborts it.

    Args:
        config: the configuration of the client.
        transactional_id: its id. A running transaction of this id is fenced.
    """
    try:
        with closing(
            Transactions(config, transactional_id, retry_timeout_s=_TIMEOUT_S, throttle_timeout_s=_TIMEOUT_S)
        ) as transactions:
            transactions.abort(transactions.begin())
    except InvalidOption as e:
        return problem("transactions", e.what, e.remedy)
    except StreamGroupsError as e:
        shown = as_in_a_file(e)
        remedy = f"{shown.remedy} If the ACLs are those of other ids, pass one of them as --transactional-id."
        return problem("transactions", shown.what, remedy)
    return ok("transactions", f"A transaction of id '{transactional_id}' was begun and aborted.")
