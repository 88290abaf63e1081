"""Opens the page of the demo whose output is in FOLDER/demo.log in headless Chromium, and holds it to
what REST says: check.py FOLDER AXE [--pictures PICTURES]. The last line is "N passed, N failed"."""

import argparse
import contextlib
import datetime
import http.server
import json
import pathlib
import re
import socket
import sys
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from states import Cluster

MARKUP = "<img src=nothing onerror=\"document.title='taken over'\">"


class Relay:
    """Stands before the service: asks for a token as it does where there are users, cuts connections,
    and puts markup into reasons."""

    def __init__(self, base: str):
        self.base, self.guarded, self.cut, self.markup = base, False, False, False
        self.connections: list[socket.socket] = []
        relay = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def refuse(self, status: int, detail: str) -> None:
                body = json.dumps({"type": "about:blank", "title": "", "status": status, "detail": detail}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/problem+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                relay.connections.append(self.connection)
                if relay.cut:
                    return self.connection.shutdown(socket.SHUT_RDWR)
                if relay.guarded and self.path.startswith("/v1/"):
                    token = self.headers.get("Authorization")
                    if token not in ("Bearer all", "Bearer vision"):
                        return self.refuse(401, "the token isn't accepted" if token else "there is no bearer token")
                    if token == "Bearer vision" and "namespace=vision" not in self.path:
                        return self.refuse(403, "watching PodGroups in all namespaces isn't allowed to you")
                with contextlib.suppress(OSError), urllib.request.urlopen(relay.base + self.path) as answer:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                            self.send_header(name, value)
                    self.end_headers()
                    watch = "watch=true" in self.path
                    rest = b""
                    while piece := answer.read1(65536):
                        rest += piece
                        whole, _, rest = rest.rpartition(b"\n") if watch else (rest, b"", b"")
                        if watch and not whole:
                            continue
                        if relay.markup:
                            whole = re.sub(rb'(?<="message":)"[^"]* members exist[^"]*"', lambda _: json.dumps(MARKUP).encode(), whole)
                        self.wfile.write(whole + (b"\n" if watch else b""))
                        self.wfile.flush()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def cut_all(self) -> None:
        self.cut = True
        for connection in self.connections:
            with contextlib.suppress(OSError):  # over long ago
                connection.shutdown(socket.SHUT_RDWR)


class Checks:
    def __init__(self, base: str, axe: str, pictures: pathlib.Path | None):
        self.base, self.axe, self.pictures = base, axe, pictures
        self.passed = self.failed = 0
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        # As root there is no sandbox; everything that is opened is our own.
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                         "--hide-scrollbars", "--disable-background-networking", "--window-size=1280,1000"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)

    def case(self, name: str, run) -> None:
        try:
            run()
            self.passed += 1
            print(f"ok: {name}", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            self.failed += 1
            print(f"FAILED: {name}: {error}", flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc(file=sys.stdout)

    def rest(self, path: str) -> dict:
        with urllib.request.urlopen(self.base + path, timeout=10) as answer:
            return json.load(answer)

    def gang(self, key: str) -> dict:
        try:
            return self.rest(f"/v1/gangs/{key}")
        except urllib.error.HTTPError:
            return {"state": "none", "reason": {}}

    def open(self, fragment: str, base: str = "") -> None:
        self.browser.get("about:blank")
        self.browser.get((base or self.base) + fragment)

    def script(self, text: str, *arguments):
        return self.browser.execute_script(text, *arguments)

    def text(self) -> str:
        return self.script("return document.body.innerText")

    def until(self, what: str, true, seconds: float = 15):
        deadline = time.monotonic() + seconds
        while not (value := true()):
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.1)
        return value

    def shows(self, *words: str, seconds: float = 15) -> None:
        missing = []

        def all_there() -> bool:
            text = self.text()
            missing[:] = [each for each in words if each not in text]
            return not missing
        try:
            self.until("", all_there, seconds)
        except AssertionError:
            raise AssertionError(f"the page doesn't show {missing}, but:\n{self.text()}") from None

    def focused(self) -> str:
        return self.script("return document.activeElement.innerText || document.activeElement.id || document.activeElement.tagName")

    def press(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    def no_console_errors(self) -> None:
        said = [each["message"] for each in self.browser.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]
        assert not said, f"the console has {said}"

    def scheme(self, name: str) -> None:
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def look(self, name: str, fragment: str, *words: str) -> None:
        """One view, dark and light: what it shows, axe's findings, the console's."""
        for scheme in ("light", "dark"):
            def view(scheme=scheme):
                self.scheme(scheme)
                self.open(fragment)
                self.shows(*words)
                back = self.script("return getComputedStyle(document.body).backgroundColor")
                assert (back == "rgb(255, 255, 255)") == (scheme == "light"), f"{scheme}: the background is {back}"
                if self.pictures:
                    time.sleep(0.3)
                    self.browser.save_screenshot(str(self.pictures / f"{name}-{scheme}.png"))
                self.script(self.axe)
                found = self.browser.execute_async_script(
                    "const done = arguments[0]; axe.run(document).then(found => done(found.violations.map("
                    "each => each.id + ': ' + each.help + ': ' + each.nodes.map(node => node.html.slice(0, 200)).join(' | '))),"
                    " error => done([String(error)]))")
                assert not found, f"axe finds {found}"
                assert self.script("return document.documentElement.scrollWidth <= innerWidth"), "it is wider than the window"
                self.no_console_errors()
            self.case(f"{name}, {scheme}", view)


def address(log: pathlib.Path) -> tuple[str, Cluster]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = log.read_text()
        url, kubeconfig = re.search(r"curl (http://[0-9.:]+)/v1/nodes", text), re.search(r"--kubeconfig=(\S+)", text)
        if url and kubeconfig:
            return url.group(1), Cluster(pathlib.Path(kubeconfig.group(1)).read_text())
        time.sleep(0.1)
    sys.exit(f"the demo didn't come up:\n{log.read_text()}\n0 passed, 1 failed")


def rows(checks: Checks) -> dict[str, str]:
    return dict(checks.script(
        "return [...document.querySelectorAll('table.gangs tbody tr')].map(row => "
        "[row.querySelector('th').innerText.split('\\n').reverse().join('/'), row.innerText])"))


def says_what_rest_says(checks: Checks) -> None:
    """Each gang's row has its state, reason, fix, and place in line."""
    def same() -> bool:
        gangs = checks.rest("/v1/gangs")["gangs"]
        shown = rows(checks)
        assert len(gangs) >= 8, [each["name"] for each in gangs]
        if set(shown) != {f"{each['namespace']}/{each['name']}" for each in gangs}:
            return False
        places = {f"{each['namespace']}/{each['name']}": i + 1
                  for queue in checks.rest("/v1/queues")["queues"] for i, each in enumerate(queue["pendingGangs"])}
        for gang in gangs:
            key = f"{gang['namespace']}/{gang['name']}"
            row = " ".join(shown[key].split())
            wanted = [gang["state"].lower().replace("_", " "), " ".join(gang["reason"]["message"].split()), " ".join(gang["reason"]["fix"].split())]
            if key in places:
                wanted.append({1: "1st", 2: "2nd", 3: "3rd"}[places[key]] + " of ")
            if any(each not in row for each in wanted):
                return False
        return bool(places)
    checks.until("each row says what REST says", same)


def table_says_what_the_picture_shows(checks: Checks, key: str) -> None:
    """The gang's moments and each step of its nodes, with their times."""
    checks.open(f"#/gangs/{key}")
    checks.shows("The same as a table")
    checks.script("document.querySelector('details').open = true")
    gang = checks.gang(key)
    wanted = {("the gang", word, gang[field]) for word, field in (("created", "createdAt"), ("admitted", "admittedAt"), ("bound", "boundAt"))}
    wanted.add(("the gang", "quorum", sorted(each["createdAt"] for each in gang["members"])[int(gang["minMember"]) - 1]))
    for node in gang["nodes"]:
        stages = [each["stage"] for each in node["steps"]]
        assert stages == ["REQUESTED", "LAUNCHED", "REGISTERED", "INITIALIZED", "USABLE"], stages
        wanted |= {(node["name"].split(".")[0], step["stage"].lower(), step["at"]) for step in node["steps"]}
    clock = "(at => new Date(at).toLocaleTimeString([], {hour12: false}))"
    wanted = {(who, what, checks.script(f"return {clock}(arguments[0])", at)) for who, what, at in wanted}

    def shown() -> set:
        return {(who, what, at) for at, _, who, what, _ in checks.script(
            "return [...document.querySelectorAll('details tbody tr')].map(row => [...row.children].map(cell => cell.innerText))")}
    checks.until("the table has all of it", shown)
    assert shown() == wanted, f"the table has {sorted(shown())}, REST {sorted(wanted)}"
    parts = checks.script("return document.querySelectorAll('svg.story rect.usable').length")
    assert parts == len(gang["nodes"]), f"{parts} nodes are usable in the picture"


def filters(checks: Checks) -> None:
    checks.open("#/gangs?text=whisper")
    checks.shows("whisper-ft")
    assert set(rows(checks)) == {"speech/whisper-ft"}, rows(checks)
    checks.open("#/gangs?state=WAITING_FOR_MEMBERS")
    checks.until("only that state", lambda: set(rows(checks)) == {"vision/needs-members"})
    checks.open("#/gangs")
    checks.shows("asr-eval")
    checks.browser.find_element(By.ID, "filter-namespace").send_keys("speech", Keys.ENTER)
    checks.until("only that namespace", lambda: rows(checks) and all(each.startswith("speech/") for each in rows(checks)))
    assert "namespace=speech" in checks.browser.current_url, checks.browser.current_url
    field = checks.browser.find_element(By.ID, "filter-text")
    field.send_keys("asr")
    checks.until("only that one", lambda: set(rows(checks)) == {"speech/asr-eval"})
    assert checks.focused() == "filter-text", checks.focused()
    checks.no_console_errors()


def keyboard(checks: Checks) -> None:
    checks.open("#/gangs")
    checks.shows("whisper-ft")
    for _ in range(40):
        checks.press(Keys.TAB)
        if checks.focused() == "whisper-ft":
            break
    assert checks.focused() == "whisper-ft", f"the focus is on {checks.focused()}"
    checks.press(Keys.ENTER)
    checks.until("the heading has the focus", lambda: checks.focused() == "speech/whisper-ft")
    checks.shows("Its story", "Members")
    ActionChains(checks.browser).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
    assert checks.focused() == "All gangs", checks.focused()
    checks.press(Keys.ENTER)
    checks.until("the focus is where it was", lambda: checks.focused() == "whisper-ft")
    checks.no_console_errors()


def update_keeps_the_focus(checks: Checks, cluster: Cluster) -> None:
    """The row that has the focus changes and takes another place; a selection and the scroll stay."""
    checks.open("#/gangs")
    checks.shows("needs-members")
    checks.script("""
      const link = [...document.querySelectorAll('table.gangs a')].find(each => each.innerText === 'needs-members');
      link.focus();
      window.kept = {link, row: link.closest('tr')};
      const other = [...document.querySelectorAll('table.gangs a')].find(each => each.innerText === 'pytorch-dist-job');
      getSelection().selectAllChildren(other);""")
    state = checks.gang("vision/needs-members")["state"]
    assert state == "WAITING_FOR_MEMBERS", state
    for i in (2, 3):
        cluster.pod("vision", "needs-members", i, {"kueue.x-k8s.io/queue-name": "default"}, "research")
    checks.until("its new state is shown", lambda: "waiting for members" not in rows(checks)["vision/needs-members"])
    now = checks.script("return {focus: document.activeElement === window.kept.link, there: window.kept.row.isConnected,"
                        " selected: getSelection().toString()}")
    assert now == {"focus": True, "there": True, "selected": "pytorch-dist-job"}, now
    checks.no_console_errors()


def token(checks: Checks, relay: Relay) -> None:
    relay.guarded = True
    checks.open("#/gangs", relay.url)
    checks.shows("Whose token?", "kubectl create token")
    assert checks.focused() == "token", checks.focused()
    checks.press("wrong", Keys.ENTER)
    checks.shows("This token isn't accepted: the token isn't accepted.")
    checks.press("vision", Keys.ENTER)
    checks.shows("watching PodGroups in all namespaces isn't allowed to you", "Say which namespace is yours")
    checks.browser.find_element(By.ID, "filter-namespace").send_keys("vision", Keys.ENTER)
    checks.shows("vit-large", "live")
    assert "whisper-ft" not in checks.text()
    checks.browser.find_element(By.ID, "forget").click()
    checks.shows("Whose token?")
    assert checks.script("return [sessionStorage.length, localStorage.length, document.cookie]") == [0, 0, ""]
    checks.press("all", Keys.ENTER)
    checks.shows("vit-large", "live")
    checks.browser.refresh()
    checks.shows("vit-large", "live")
    relay.guarded = False
    said = [each["message"] for each in checks.browser.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]
    assert all("status of 401" in each or "status of 403" in each for each in said), said


def connection(checks: Checks, relay: Relay, cluster: Cluster) -> None:
    checks.open("#/gangs", relay.url)
    checks.shows("asr-eval", "live")
    relay.cut_all()
    checks.shows("trying again; what is shown is as of")
    assert "asr-eval" in checks.text(), "what was known is still shown"
    cluster.delete_gang("speech", "asr-eval")
    checks.until("the gang is gone", lambda: checks.gang("speech/asr-eval")["state"] == "none")
    relay.cut = False
    checks.until("it is live again without what went meanwhile",
                 lambda: "live" in checks.text() and "asr-eval" not in checks.text() and "whisper-ft" in checks.text(), 40)
    checks.browser.get_log("browser")


def words_stay_words(checks: Checks, relay: Relay, cluster: Cluster) -> None:
    cluster.gang("vision", "words", 1, 2, "default")
    relay.markup = True
    checks.open("#/gangs", relay.url)
    checks.shows("words", MARKUP)
    assert checks.script("return document.images.length") == 0
    assert checks.browser.title == "Gangs · Muster", checks.browser.title
    relay.markup = False
    checks.no_console_errors()


def backs_off(gang: dict) -> bool:
    if gang["state"] != "BACKING_OFF":
        return False
    retry = datetime.datetime.fromisoformat(gang["retryAt"][:19] + "+00:00")
    return (retry - datetime.datetime.now(datetime.timezone.utc)).total_seconds() > 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("axe", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    given = parser.parse_args()
    log = given.folder / "demo.log"
    base, cluster = address(log)
    checks = Checks(base, given.axe.read_text(), given.pictures)
    relay = Relay(base)
    first, second = "default/pytorch-dist-job", "default/pytorch-dist-job-2"

    # While the first job's nodes come, one after the other.
    checks.until("a node is held", lambda: any(each["holds"] for each in checks.rest("/v1/nodes")["nodes"]), 60)
    checks.look("provisioning", f"#/gangs/{first}", "provisioning", "of 4 nodes usable; waiting for", "created, quorum", "admitted", "held", "deadline in")
    checks.look("nodes", "#/nodes", "held for default/pytorch-dist-job until", "expected for default/pytorch-dist-job", "coming")
    checks.until("the demo has shown all", lambda: "Everything goes on" in log.read_text(), 180)
    checks.look("bound", f"#/gangs/{first}", "4 of 4 bound, 4 exist", "4 of 4 members bound")

    cluster.node_pool("research")
    cluster.queues()
    cluster.gang("vision", "needs-members", 2, 4, "default")
    cluster.gang("vision", "vit-large", 4, 4, "default")
    checks.until("the first has its quota", lambda: checks.gang("vision/vit-large")["state"] in ("PROVISIONING", "READY", "BINDING", "BOUND"))
    cluster.gang("vision", "vit-small", 2, 2, "default")
    checks.until("the second, too", lambda: checks.gang("vision/vit-small")["state"] in ("PROVISIONING", "READY", "BINDING", "BOUND"))
    cluster.gang("speech", "whisper-ft", 4, 4, "default")
    time.sleep(1.1)  # ages are in whole seconds
    cluster.gang("speech", "asr-eval", 4, 4, "default")
    cluster.gang("speech", "too-many-gpus", 2, 2, "default", gpus=8)
    for key, state in (("speech/asr-eval", "WAITING_FOR_QUOTA"), ("speech/too-many-gpus", "INFEASIBLE"), ("vision/needs-members", "WAITING_FOR_MEMBERS")):
        checks.until(f"{key} is {state}", lambda key=key, state=state: checks.gang(key)["state"] == state, 30)

    checks.look("gangs", "#/gangs", "whisper-ft", "1st of 2 in speech", "2nd of 2 in speech", "infeasible", "waiting for members", "bound")
    checks.look("queues", "#/queues", "6 of 2 used, 4 of it borrowed", "0 of 4 used, up to 4 lent", "Who waits, in order", "speech/whisper-ft", "cohort labs")
    checks.look("waiting-for-quota", "#/gangs/speech/whisper-ft", "waiting for quota", "1st of 2 in speech", "flavor research has 0 nvidia.com/gpu unused", "→ wait until")
    checks.look("waiting-for-members", "#/gangs/vision/needs-members", "2 of 4 members exist", "→ create the missing pods")
    checks.look("infeasible", "#/gangs/speech/too-many-gpus", "infeasible", "What NodePools can do for it")
    checks.until("the second job backs off, for long enough to be looked at", lambda: backs_off(checks.gang(second)), 200)
    checks.look("backing-off", f"#/gangs/{second}", "backing off", "next attempt in", "Setbacks", "node not registered", "gave up")
    checks.scheme("light")
    checks.case("each gang's row says what REST says", lambda: (checks.open("#/gangs"), says_what_rest_says(checks)))
    checks.case("a story's table says what REST says", lambda: table_says_what_the_picture_shows(checks, first))
    checks.case("filters, and the address that keeps them", lambda: filters(checks))
    checks.case("from the list to a gang and back by keyboard", lambda: keyboard(checks))
    checks.case("an update leaves focus and selection where they are", lambda: update_keeps_the_focus(checks, cluster))
    checks.case("a token: asked for, refused, too little, enough, forgotten", lambda: token(checks, relay))
    checks.case("what others wrote stays text", lambda: words_stay_words(checks, relay, cluster))
    checks.case("a lost connection is told, and made good", lambda: connection(checks, relay, cluster))
    checks.browser.quit()
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
