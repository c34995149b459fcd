#!/bin/sh
# Makes the keys and passwords of the containers (secure.yaml), once for a volume. Nobody but the user of the containers can read them.
set -eu
umask 077
cd "${1:-/secrets}"
[ ! -f client.yaml ] || exit 0

openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=CA of DSkype" -keyout ca.key -out ca.pem
openssl req -newkey rsa:2048 -nodes -subj "/CN=kafka" -keyout broker.key -out broker.csr
echo "subjectAltName=DNS:kafka-1,DNS:kafka-2,DNS:kafka-3,DNS:localhost,IP:127.0.0.1" > names
openssl x509 -req -in broker.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile names -out broker.crt
cat broker.key broker.crt ca.pem > broker.pem
rm ca.key broker.key broker.csr broker.crt names ca.srl

brokers=$(openssl rand -hex 24)
clients=$(openssl rand -hex 24)
login=org.apache.kafka.common.security.plain.PlainLoginModule
echo "login=$login required username=\"broker\" password=\"$brokers\" user_broker=\"$brokers\" user_dskype=\"$clients\";" > broker.properties
cat > client.properties << END
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=$login required username="dskype" password="$clients";
ssl.truststore.type=PEM
ssl.truststore.location=$PWD/ca.pem
END

mkdir -p spark
cat > spark/spark-defaults.conf << END
spark.authenticate true
spark.authenticate.secret $(openssl rand -hex 32)
spark.network.crypto.enabled true
END

# Last: with it, everything is there.
cat > client.new << END
# What Kafka's clients need: dskype ... --config FILE, or DSKYPE_CONFIG=FILE.
kafka.security.protocol: SASL_SSL
kafka.sasl.mechanism: PLAIN
kafka.sasl.jaas.config: $login required username="dskype" password="$clients";
kafka.ssl.truststore.type: PEM
kafka.ssl.truststore.certificates: |
$(sed 's/^/  /' ca.pem)
END
{ cat client.new; sed 's/ /: /' spark/spark-defaults.conf | sed 's/: true$/: "true"/'; } > driver.yaml
mv client.new client.yaml
