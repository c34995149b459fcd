#!/bin/bash
# The command of an executor pod (dskype.yaml, executor.yaml). Spark adds the argument "executor" and says everything else by environment variables.
set -eu

options=()
while IFS= read -r -d '' variable; do
    case "$variable" in
        SPARK_JAVA_OPT_*=*) options+=("${variable#*=}") ;;
    esac
done < <(env -0)

jars=$(python -P -c 'import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), "jars"))')

exec java "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
