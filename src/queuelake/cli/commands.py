"""The subcommands of `queuelake`, in the order of its help."""

from __future__ import annotations

import typer

from queuelake.cli import (
    apply,
    backup,
    clients,
    cluster,
    configuration,
    dlq,
    doctor,
    ecq,
    keys,
    pipeline,
    publish,
    queue,
    sdv,
    serve,
    subscribe,
    top,
    users,
)

EPILOG = """
Examples:

  queuelake serve                            a broker on 127.0.0.1:1883
  queuelake sub -t 'sensors/#' -v            see what arrives
  queuelake pub -t sensors/1 -m 21.5 -q 1    send something
  queuelake queue list                       every durable queue
  queuelake top                              what happens, live
  queuelake apply -f queues.toml             queues, users and rules as a file says
  queuelake users add users.txt alice        let somebody in
  queuelake doctor                           what is wrong, and what mends it

Every command explains itself: queuelake COMMAND --help.
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
"""

app = typer.Typer(
    name="queuelake",
    help="An MQTT broker that loses nothing: MQTT 3.1.1 and 5.0, durable before it acknowledges.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command("pub", epilog=publish.EPILOG)(publish.publish)
app.command("sub", epilog=subscribe.EPILOG)(subscribe.subscribe)
app.add_typer(queue.app, name="queue", epilog=queue.EPILOG)
app.add_typer(dlq.app, name="dlq", epilog=dlq.EPILOG)
app.add_typer(clients.clients, name="clients", epilog=clients.CLIENTS_EPILOG)
app.add_typer(clients.retained, name="retained", epilog=clients.RETAINED_EPILOG)
app.add_typer(clients.acl, name="acl", epilog=clients.ACL_EPILOG)
app.command(epilog=top.EPILOG)(top.top)
app.command(epilog=apply.EPILOG)(apply.apply)
app.add_typer(users.app, name="users", epilog=users.EPILOG)
app.add_typer(keys.app, name="keys", epilog=keys.EPILOG)
app.add_typer(ecq.app, name="ecq", epilog=ecq.EPILOG)
app.add_typer(sdv.app, name="sdv", epilog=sdv.EPILOG)
app.add_typer(pipeline.app, name="pipeline", epilog=pipeline.EPILOG)
app.add_typer(cluster.app, name="cluster", epilog=cluster.EPILOG)
app.command(epilog=backup.EPILOG)(backup.backup)
app.command(epilog=doctor.EPILOG)(doctor.doctor)
app.add_typer(configuration.app, name="config", epilog=configuration.EPILOG)


@app.command()
def version() -> None:
    """Print the version."""
    from queuelake import __version__

    print(f"queuelake {__version__}")
