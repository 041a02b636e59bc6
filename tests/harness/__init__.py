"""What the tests drive the broker with: a subprocess (`broker`) and a raw MQTT client (`wire`).

Nothing here imports `queuelake`: the codec of the tests is a second opinion on the codec of the
product, and the broker is the one users start.
"""
