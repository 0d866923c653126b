"""`gnomon dashboard`: an address that signs in once, and `gnomon up`, which says where the dashboard is."""

import re
import socket
from pathlib import Path

import httpx

from support.command_line import run_command
from support.gnomon_processes import up


def test_the_owner_of_a_database_file_opens_the_dashboard_signed_in(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"
    with up(database, "--port", "0", environment={"GNOMON_UI__PRINT_LINK": "true"}) as process:
        printed = process.line_with("signed in once within a minute").split()[-1]
        server = printed.partition("/ui/")[0]
        port = server.rpartition(":")[2]
        made = run_command("dashboard", "--database", str(database), "--port", port, "--print", folder=tmp_path)
        address = made.stdout.strip()

        with httpx.Client(base_url=server) as browser:
            # The newer code of the same caller ends the one that was printed at the start.
            for one, status in ((printed, 401), (address, 303), (address, 401)):
                code = re.fullmatch(rf"{re.escape(server)}/ui/login\?code=([\w-]+)", one)
                assert code is not None, one
                answer = browser.post("/ui/login", data={"code": code[1]}, headers={"Origin": server})
                assert answer.status_code == status
            assert "local-admin" in browser.get("/ui/").text


def test_up_says_where_the_dashboard_is_and_signs_nobody_in_by_itself(tmp_path: Path) -> None:
    with up(tmp_path / "gnomon.db", "--port", "0") as process:
        line = process.line_with("the dashboard is at")

    assert "gnomon dashboard opens it signed in" in line
    assert "code=" not in line


def test_without_a_server_the_command_names_the_remedy(tmp_path: Path) -> None:
    database = str(tmp_path / "gnomon.db")
    missing = run_command("dashboard", "--database", database, "--print", folder=tmp_path)
    assert "name the server with --server and a token" in missing.stderr

    (tmp_path / "gnomon.db.token").write_text("a token")
    (tmp_path / "gnomon.db.token").chmod(0o600)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        refused = run_command("dashboard", "--database", database, "--port", port, "--print", folder=tmp_path)

    assert refused.returncode != 0
    assert "start it with gnomon up, or name its --port" in refused.stderr
