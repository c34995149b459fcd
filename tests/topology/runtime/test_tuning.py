"""What has no setting is tuned through private parts of Spark. A Spark in which they have moved would only be slower, so a test tells."""

from __future__ import annotations

from dskype.topology.runtime.micro_batch import tuning


def test_the_private_parts_of_the_installed_spark_are_where_they_are_expected(cluster, tmp_path):
    spark = cluster.environment.spark
    bus = spark.sparkContext._jsc.sc().listenerBus()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", tmp_path.as_uri()).start()
    try:
        assert tuning.set_polling_delay(spark, query, 150)
        tuning.drop_listeners(spark)
        assert not tuning._UI_LISTENERS & {listener.getClass().getName() for listener in bus.listeners().toArray()}
        assert tuning.exclude_rules(spark) == len(spark.conf.get("spark.sql.optimizer.excludedRules").split(",")) > 50
    finally:
        query.stop()
