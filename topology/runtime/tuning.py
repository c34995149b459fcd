"""What no setting of Spark does, through py4j.

This reaches into private parts of Spark 4.0: every function leaves Spark as it is, and logs why, when it does
not find what it expects.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["drop_listeners", "exclude_rules", "set_polling_delay"]

log = logging.getLogger(__name__)

_UI_LISTENERS = {"org.apache.spark.status.AppStatusListener", "org.apache.spark.sql.execution.ui.SQLAppStatusListener"}


def exclude_rules(spark: Any) -> int:
    """Exclude every optimizer rule that may be excluded; a plan of scan, project, map and write needs none.

    :returns: how many were excluded (92 in Spark 4.0.0).
    """
    try:
        optimizer = spark._jsparkSession.sessionState().optimizer()
        fixed = set(optimizer.nonExcludableRules().toList().mkString("\n").split("\n"))
        batches = optimizer.defaultBatches()
        names = [rules.apply(j).ruleName() for i in range(batches.size()) for rules in [batches.apply(i).rules()] for j in range(rules.size())]
        excluded = [n for n in dict.fromkeys(names) if n not in fixed]
        spark.conf.set("spark.sql.optimizer.excludedRules", ",".join(excluded))
    except Exception as error:  # another version of Spark
        log.info("optimizer rules stay as they are: %s", error)
        return 0
    return len(excluded)


def drop_listeners(spark: Any) -> None:
    """Take away the listeners that gather what the web UI shows; call it after the first query has started."""
    try:
        bus = spark.sparkContext._jsc.sc().listenerBus()
        for listener in list(bus.listeners().toArray()):
            if listener.getClass().getName() in _UI_LISTENERS:
                bus.removeListener(listener)
    except Exception as error:  # another version of Spark
        log.info("the listeners of the web UI stay: %s", error)


def set_polling_delay(spark: Any, query: Any, delay_ms: int) -> bool:
    """Set how long a running query sleeps when its topics had nothing new.

    :returns: whether it could be set.
    """
    try:
        execution = query._jsq.streamingQuery() if hasattr(query._jsq, "streamingQuery") else query._jsq
        kind = spark.sparkContext._jvm.java.lang.Class.forName("org.apache.spark.sql.execution.streaming.StreamExecution")
        field = kind.getDeclaredField("pollingDelayMs")
        field.setAccessible(True)
        field.setLong(execution, delay_ms)
    except Exception as error:  # another version of Spark
        log.info("the polling delay stays as it is: %s", error)
        return False
    return True
