"""The smallest properties file of a worker. No broker is at its address, port 1."""

WORKER_FILE = """\
bootstrap.servers=127.0.0.1:1
group.id=g
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
"""
