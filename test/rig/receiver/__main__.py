"""Starts the receiver if nothing is missing."""

import signal
import sys

from .command_line import check_secret, listen, prepare_database, read_arguments


def main() -> None:
    args = read_arguments()
    secret, database, server = check_secret(args.secret), prepare_database(args.database), listen(args.host, args.port)

    import uvicorn  # imported late: it takes half a second, which an error message need not
    from .app import Behaviour, make_app
    from .screen import Screen

    fail = args.fail if args.fail is not None else float(args.status is not None)
    behaviour = Behaviour(fail, args.status or 500, args.retry_after, args.delay)
    screen = Screen()
    screen.say(f"""listening on http://{args.host}:{args.port}/  (Ctrl-C ends it). A sink that sends here, for a superuser to paste:

BEGIN;
CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook
  OPTIONS (url 'http://{args.host}:{args.port}/hooks', allow_http 'true', allow_networks '127.0.0.0/8');
CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (secret '{secret}');
COMMIT;

Or, for a sink "crm" that exists and has this secret:

ALTER SERVER crm OPTIONS (SET url 'http://{args.host}:{args.port}/hooks', ADD allow_http 'true', ADD allow_networks '127.0.0.0/8');
""")
    app = make_app(secret, database, behaviour, screen)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)).run(sockets=[server])
    except KeyboardInterrupt:
        pass
    finally:
        screen.say(screen.summary())


if __name__ == "__main__":
    main()
