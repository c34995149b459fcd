"""Tuning of Spark for micro-batches for which there is no setting, through py4j.

It uses private parts of Spark 4.2. If a function does not find what it expects, it logs why and leaves Spark as it is.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["drop_listeners", "exclude_rules", "set_polling_delay"]

log = logging.getLogger(__name__)

_EXCLUDED = "spark.sql.optimizer.excludedRules"
_UI_LISTENERS = {"org.apache.spark.status.AppStatusListener", "org.apache.spark.sql.execution.ui.SQLAppStatusListener"}


def exclude_rules(spark: Any) -> int:
    """Exclude all optimizer rules that Spark allows to exclude; a plan of scan, project, map and write needs none.

    :returns: the number of excluded rules (95 in Spark 4.2.0).
    """
    if set_already := spark.conf.get(_EXCLUDED, ""):
        return set_already.count(",") + 1
    try:
        optimizer = spark._jsparkSession.sessionState().optimizer()
        fixed = set(optimizer.nonExcludableRules().toList().mkString("\n").split("\n"))
        batches = optimizer.defaultBatches()
        names = [rules.apply(j).ruleName() for i in range(batches.size()) for rules in [batches.apply(i).rules()] for j in range(rules.size())]
        excluded = [n for n in dict.fromkeys(names) if n not in fixed]
        spark.conf.set(_EXCLUDED, ",".join(excluded))
    except Exception as error:  # another version of Spark
        log.info("optimizer rules stay as they are: %s", error)
        return 0
    return len(excluded)


def drop_listeners(spark: Any) -> None:
    """Remove the listeners that collect data for Spark's web UI, unless it is on, or Spark is a cluster: there they know which executors are there. Call it after the first query has started."""
    try:
        conf = spark.sparkContext.getConf()
        if conf.get("spark.ui.enabled") == "true" or not spark.sparkContext.master.startswith("local"):
            return
        bus = spark.sparkContext._jsc.sc().listenerBus()
        for listener in list(bus.listeners().toArray()):
            if listener.getClass().getName() in _UI_LISTENERS:
                bus.removeListener(listener)
    except Exception as error:  # another version of Spark
        log.info("the listeners of the web UI stay: %s", error)


def set_polling_delay(spark: Any, query: Any, delay_ms: int) -> bool:
    """Set how long a running query sleeps if its topics have no new records.

    :returns: whether it could be set.
    """
    try:
        execution = query._jsq.streamingQuery() if hasattr(query._jsq, "streamingQuery") else query._jsq
        kind = spark.sparkContext._jvm.java.lang.Class.forName("org.apache.spark.sql.execution.streaming.runtime.StreamExecution")
        field = kind.getDeclaredField("pollingDelayMs")
        field.setAccessible(True)
        field.setLong(execution, delay_ms)
    except Exception as error:  # another version of Spark
        log.info("the polling delay stays as it is: %s", error)
        return False
    return True
