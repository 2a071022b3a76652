"""What gdb says of Heddle: `heddle waits`, for a running process or a core dump, and the handles of the C API.

    (gdb) source PREFIX/share/heddle/heddle-gdb.py

gdb reads it by itself where the library is installed beside gdb (docs/debugging.md). It calls nothing in the process and
needs no debugging information of the library: what lies where, the symbol heddle_debug_directory says (src/tap/debug_view.hpp,
whose layout this file knows; docs/decisions/0063).
"""

import struct

import gdb
import gdb.printing

VERSION = 1
ANYBODY = 0xFFFFFFFF
MOST_LISTED = 16
MOST_WALKED = 100_000  # of a list: one that is damaged may lead in circles
KINDS = ("put", "get", "atomic", "message", "operation of a protocol", "work of a protocol")
# tap::Cause: what has to happen.
CAUSES = (
    "", "has to make progress", "has to make room", "has to send", "has to receive it", "has to receive what came before",
    "has to call heddle_run_tasks", "has not come to the collective", "has to write the word", "holds the lock",
    "has to do its part", "this rank has to go on")


class Absent(Exception):
    """Memory that cannot be read: it is not in the core dump, or the structures are damaged."""


class NoHeddle(Exception):
    """The process has no Heddle, or one that this script does not know."""


def read(address, size):
    try:
        return gdb.selected_inferior().read_memory(address, size).tobytes()
    except (gdb.error, OverflowError, MemoryError, ValueError) as error:
        raise Absent(f"memory at {address:#x}") from error


def number(address, size):
    return int.from_bytes(read(address, size), "little")


def text(address, most=64):
    """A text of the process's; "?" where its memory is not there."""
    taken = b""
    try:
        while len(taken) < most and (byte := read(address + len(taken), 1)) != b"\0":
            taken += byte
    except Absent:
        return "?"
    return clean(taken)


def clean(taken):
    """Up to its end, with what a terminal would obey made harmless."""
    words = taken.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else " " for letter in words)


class Layout:
    """A structure of debug_view.hpp: the names of its members, and struct's format of them."""

    def __init__(self, form, names):
        self.form = struct.Struct("<" + form)
        self.names = names.split()

    def at(self, address):
        return dict(zip(self.names, self.form.unpack(read(address, self.form.size))))


DIRECTORY = Layout("16sIIQQQQ", "magic version bytes handles type_count types contexts")
TYPE = Layout("QQQQQ", "name first entries fields field_count")
FIELD = Layout("QII", "name offset bytes")
CONTEXT = Layout("QQIIQQQ", "next handle rank size process workers waits")
WORKER = Layout("QQIIII16s", "next handle index open value_count row_count mode")
VALUE = Layout("QQII", "name address bytes shift")
MOST_VALUES = 16
ROWS = Layout("QIIQQQIIQQ", "name shape stride first count number link chain fields field_count")
WAIT = Layout("QIIIIQ64s400s", "next waits thread worker thing_count told_ns call awaited")
THING = Layout("IIII48s48s", "cause rank worker reserved what tag")


def chain(first, layout):
    """Structures that lead to the next by their first word, with their addresses."""
    seen = set()
    while first != 0 and first not in seen and len(seen) < MOST_WALKED:
        seen.add(first)
        one = layout.at(first)
        yield first, one
        first = one["next"]


def fields_of(address, count):
    """Names, offsets and sizes. They never change in a process, and reading them takes long."""
    key = (gdb.selected_inferior().num, gdb.selected_inferior().pid, address, count)
    if key not in KNOWN_FIELDS:
        fields = [FIELD.at(address + i * FIELD.form.size) for i in range(min(count, MOST_FIELDS))]
        KNOWN_FIELDS[key] = [(text(field["name"]), field["offset"], min(field["bytes"], 16)) for field in fields]
    return KNOWN_FIELDS[key]


KNOWN_FIELDS = {}
MOST_FIELDS = 64


class Directory:
    """What heddle_debug_directory leads to, in the selected process."""

    def __init__(self):
        found = self.find()
        self.all = DIRECTORY.at(found)
        if clean(self.all["magic"]) != "heddle-debug":
            raise NoHeddle("heddle_debug_directory is not what it should be: its memory is not there, or damaged")
        if self.all["version"] != VERSION:
            raise NoHeddle(f"this libheddle shows itself in form {self.all['version']}; heddle-gdb.py knows {VERSION}: "
                           "use the one that is installed with the library")

    @staticmethod
    def find():
        try:
            # The program may be of another language, which has other casts.
            language = gdb.parameter("language")
            gdb.execute("set language c", to_string=True)
            try:
                return int(gdb.parse_and_eval("(unsigned long)&heddle_debug_directory"))
            finally:
                gdb.execute(f"set language {language}", to_string=True)
        except gdb.error as error:
            raise NoHeddle("there is no Heddle of version 0.3 or newer in this process, or gdb has not got its library "
                           "(`info sharedlibrary`; for a core dump of another machine `set sysroot`)") from error

    def contexts(self):
        return chain(self.all["contexts"], CONTEXT)

    def handle(self, handle):
        """The name of its type (None: there is no such type), whether it is open, and its object's fields by name."""
        kind = handle >> 60
        if not 0 < kind < self.all["type_count"]:
            return None, False, {}
        row = TYPE.at(self.all["types"] + kind * TYPE.form.size)
        entry = self.all["handles"] + 16 * (row["first"] + ((handle >> 4) & (row["entries"] - 1)))
        found, instance = struct.unpack("<QQ", read(entry, 16))
        if found != handle:
            return text(row["name"]), False, {}
        return text(row["name"]), True, self.fields(instance, row)

    @staticmethod
    def fields(instance, row):
        fields = {}
        for name, offset, size in fields_of(row["fields"], row["field_count"]):
            fields[name] = number(instance + offset, size)
        return fields

    def worker(self, handle):
        """Of this handle: the context and the worker, or None."""
        for _, context in self.contexts():
            for address, worker in chain(context["workers"], WORKER):
                if worker["handle"] == handle and worker["open"]:
                    return context, Worker(address, worker)
        return None

    def context(self, handle):
        return next((context for _, context in self.contexts() if context["handle"] == handle), None)


class Worker:
    """One worker: its numbers, and the rows of its operations, receives and messages."""

    def __init__(self, address, row):
        self.index = row["index"]
        self.mode = clean(row["mode"])
        values = address + WORKER.form.size
        self.values = {}
        for i in range(min(row["value_count"], MOST_VALUES)):
            value = VALUE.at(values + i * VALUE.form.size)
            try:
                self.values[text(value["name"])] = number(value["address"], value["bytes"]) >> value["shift"]
            except Absent:
                pass  # that number is left out
        rows = values + MOST_VALUES * VALUE.form.size
        self.rows = [ROWS.at(rows + i * ROWS.form.size) for i in range(min(row["row_count"], 8))]

    def each(self, name):
        """The rows of this name, each a dictionary of its fields."""
        for row in self.rows:
            if text(row["name"]) == name:
                for at in addresses(row):
                    yield Directory.fields(at, row)


def addresses(row):
    """Of the structures of one kind: DebugShape."""
    if row["shape"] == 0:
        yield from (row["first"] + i * row["stride"] for i in range(min(row["number"], 1 << 20)))
    elif row["shape"] == 1:
        yield from linked(number(row["first"], 8), row["link"])
    elif row["shape"] == 2:
        yield from linked(number(row["first"], 8), row["link"])
    else:
        buckets = number(row["first"], 8)
        for i in range(min(number(row["count"], 4), 1 << 20)):
            for leader in linked(number(buckets + 8 * i, 8), row["chain"]):
                yield from linked(leader, row["link"])


def linked(first, link):
    """A list, or a ring, from its first."""
    at = first
    for _ in range(MOST_WALKED):
        if at == 0:
            return
        yield at
        at = number(at + link, 8)
        if at == first:
            return


# ---- in words --------------------------------------------------------------------------------------------------------


def source_text(source):
    rank, worker = source >> 32, source & ANYBODY
    if rank == ANYBODY:
        return "anybody"
    return f"any worker of rank {rank}" if worker == ANYBODY else f"worker {worker} of rank {rank}"


def tag_text(tag, mask=2**64 - 1):
    if mask == 0:
        return "any tag"
    return f"tag {tag}" if mask == 2**64 - 1 else f"tag {tag:#x} in the bits {mask:#x}"


def rank_text(rank):
    return "several ranks" if rank == ANYBODY else f"rank {rank}"


def operation_text(one):
    kind = KINDS[one["kind"]] if one["kind"] < len(KINDS) else "operation"
    told = f"{kind} for {rank_text(one['rank'])}"
    if kind == "message":
        told += f", worker {one['target']}"
    if one["bytes"]:
        told += f", {one['bytes']} bytes"
    if one["served"]:
        return told + f": waits for the answer of worker {one['served worker']} of rank {one['served rank']}"
    return told + (": posted, not ended" if one["posted"] else ": not wholly posted")


def sleep_text(asleep):
    return ", whose taker sleeps" if asleep & 1 else ""


def worker_lines(worker):
    """What one worker has under way; what cannot be read is said."""
    values = worker.values
    under_way = values.get("under way", 0)
    yield (f"worker {worker.index} ({worker.mode}): polled {values.get('polls', 0)} times; "
           f"{under_way & ANYBODY} {'operation is' if under_way & ANYBODY == 1 else 'operations are'} under way" +
           ("; errors that flush and quiet will tell" if under_way >> 63 else ""))
    waiting = values.get("queue claimed", 0) - values.get("queue executed", 0)
    if waiting > 0 or values.get("queue tail", 0) & 1:
        yield f"  command queue: {waiting} records wait{sleep_text(values.get('queue tail', 0))}"
    if values.get("tasks", 0):
        yield f"  {values['tasks']} USER messages wait for heddle_run_tasks"
    operations = (operation_text(one) for one in worker.each("operations") if one["live"])
    yield from listed(operations)
    yield from listed(f"receive of {tag_text(one['tag'], one['mask'])} from {source_text(one['source'])}: posted; nothing "
                      "that fits has come" for one in worker.each("receives"))
    kept = {}
    try:
        for one in worker.each("messages"):
            key = (one["tag"], one["source"])
            kept[key] = kept.get(key, 0) + 1
    except Absent as absent:
        yield f"  (unexpected messages: {absent} is not there)"
    yield from listed(f"{count} unexpected message{'s' if count > 1 else ''} with {tag_text(tag)} from "
                      f"{source_text(source)}: no receive has taken {'them' if count > 1 else 'it'}"
                      for (tag, source), count in kept.items())


def listed(lines):
    count = 0
    try:
        for line in lines:
            count += 1
            if count <= MOST_LISTED:
                yield "  " + line
    except Absent as absent:
        yield f"  ({absent} is not there)"
    if count > MOST_LISTED:
        yield f"  and {count - MOST_LISTED} more"


def thing_text(thing):
    cause = CAUSES[thing["cause"]] if thing["cause"] < len(CAUSES) else ""
    who = "somebody" if thing["rank"] == ANYBODY else f"rank {thing['rank']}"
    if thing["worker"] != ANYBODY:
        who = f"worker {thing['worker']} of {who}"
    tag = clean(thing["tag"])
    return f"{clean(thing['what'])}{' of ' + tag if tag else ''}: {who} {cause}".rstrip()


def wait_lines(address, wait):
    on = "" if wait["worker"] == ANYBODY else f" on worker {wait['worker']}"
    line = f"waits in {clean(wait['call'])}{on}"
    if wait["waits"] == 2:
        line = f"has waited in {clean(wait['call'])}{on}, and may wait again"
    awaited = clean(wait["awaited"])
    if awaited:
        line += ": " + awaited
    yield line
    things = address + WAIT.form.size
    for i in range(min(wait["thing_count"], 4)):
        yield "  for " + thing_text(THING.at(things + i * THING.form.size))
    if wait["told_ns"]:
        yield f"  (as it said after {wait['told_ns'] / 1e9:.2g} s)"
    else:
        yield "  (it has not said for what: it slept for less than 10 ms)"


# ---- heddle waits ----------------------------------------------------------------------------------------------------


def library_of(pc):
    return (gdb.solib_name(pc) or "").rsplit("/", 1)[-1]


def is_ours(pc):
    return library_of(pc).startswith(("libheddle", "libmpi_abi"))


def name_of(pc):
    """The function at an address. Where the library is stripped, only its public ones have names."""
    block = gdb.execute(f"info symbol {pc:#x}", to_string=True)
    return None if block.startswith("No symbol") else block.split(" in section")[0].split(" + ")[0]


def call_of(thread):
    """The library's function that this thread has been called in: the outermost one; None: it is not in the library."""
    thread.switch()
    called = None
    try:
        frame = gdb.newest_frame()
        for _ in range(100):
            if frame is None or not frame.is_valid():
                break
            if is_ours(frame.pc()):
                called = name_of(frame.pc()) or called or f"a function of {library_of(frame.pc())}"
            frame = frame.older()
    except gdb.error:
        pass  # the stack cannot be followed further
    return called


def threads():
    """The process's threads by the kernel's number, with the library's call that each is in."""
    before = gdb.selected_thread()
    found = {}
    if before is None:
        return found
    try:
        frame = gdb.selected_frame()
    except gdb.error:
        frame = None  # it runs
    try:
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda one: one.num):
            found[thread.ptid[1] or thread.ptid[0]] = (thread, call_of(thread))
    finally:
        before.switch()
        if frame is not None and frame.is_valid():
            frame.select()
    return found


def say(line):
    gdb.write(line + "\n")


def tell_waits(context, calls, told):
    """The threads of one context that wait."""
    for address, wait in chain(context["waits"], WAIT):
        if wait["waits"] == 0:
            continue
        thread, call = calls.get(wait["thread"], (None, None))
        if wait["waits"] == 2 and (thread is None or call is not None):
            continue  # it has ended, or is in another call now
        if thread is None:
            say(f"  thread (LWP {wait['thread']}, which gdb does not show)")
        else:
            say(f"  thread {thread.num} (LWP {wait['thread']})")
        told.add(wait["thread"])
        for line in wait_lines(address, wait):
            say("    " + line)


def tell_context(context, calls, told):
    process = gdb.selected_inferior().pid
    say(f"rank {context['rank']} of {context['size']}" +
        (f" (joined by process {context['process']})" if process not in (0, context["process"]) else "") + ":")
    try:
        tell_waits(context, calls, told)
    except Absent as absent:
        say(f"  its waits: {absent} is not there")
    try:
        workers = sorted(chain(context["workers"], WORKER), key=lambda one: one[1]["index"])
    except Absent as absent:
        return say(f"  its workers: {absent} is not there")
    for address, row in workers:
        if not row["open"]:
            continue
        try:
            for line in worker_lines(Worker(address, row)):
                say("  " + line)
        except Absent as absent:
            say(f"  worker {row['index']}: {absent} is not there")


class Waits(gdb.Command):
    """What the threads of this process wait for in Heddle, and what its workers have under way.

Usage: heddle waits

For a running process and for a core dump. A thread is told of once its wait sleeps; what it waits for, as it has said
itself: first after 10 ms, then from time to time."""

    def __init__(self):
        super().__init__("heddle waits", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        if argument.strip():
            raise gdb.GdbError("heddle waits takes no arguments")
        try:
            self.tell()
        except NoHeddle as error:
            raise gdb.GdbError(str(error))
        except Absent as absent:
            raise gdb.GdbError(f"{absent} is not there: the core dump was made without the heap or the library's data "
                               "(/proc/PID/coredump_filter), or is cut")

    @staticmethod
    def tell():
        directory = Directory()
        calls = threads()
        told = set()
        contexts = [context for _, context in directory.contexts()]
        if not contexts:
            say("no context of Heddle has joined a job, or all have left")
        for context in sorted(contexts, key=lambda one: one["rank"]):
            tell_context(context, calls, told)
        others = [(thread, call) for number, (thread, call) in calls.items() if call and number not in told]
        if others:
            say("in the library, and not asleep in a wait that is known:")
        for thread, call in others:
            name = f" \"{thread.name}\"" if thread.name else ""
            say(f"  thread {thread.num} (LWP {thread.ptid[1]}){name} in {call}")


class Prefix(gdb.Command):
    """Commands about Heddle."""

    def __init__(self):
        super().__init__("heddle", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, True)


# ---- handles ---------------------------------------------------------------------------------------------------------


def worker_text(directory, handle, _):
    found = directory.worker(handle)
    if found is None:
        return "worker"
    context, worker = found
    return f"worker {worker.index} of rank {context['rank']}, {worker.mode}, {worker.values.get('under way', 0) & ANYBODY} " \
           "operations under way"


def context_text(directory, handle, _):
    context = directory.context(handle)
    return "context" if context is None else f"context of rank {context['rank']} of {context['size']}"


def remote_text(_, __, fields):
    state = {1: ", not met yet", 2: ", whose owner has failed"}.get(fields["barred"], "")
    return f"remote region of rank {fields['rank']}, {fields['bytes']} bytes" + \
        (f", mapped at {fields['direct']:#x}" if fields["direct"] else "") + state


def region_text(_, __, fields):
    how = "allocated" if fields["allocated"] else "registered"
    return f"region of {fields['bytes']} bytes at {fields['address']:#x}, {how}"


def counter_text(_, __, fields):
    error = fields["first error"]
    return f"counter at {fields['value']}" + (f", first error {error - 2**32}" if error else "")


def team_text(_, __, fields):
    begin, end = fields["ranks"] & (2**64 - 1), fields["ranks"] >> 64
    size = (end - begin) // 4
    return f"team of {size}, this is its rank {fields['rank']}; {fields['calls']} collective calls"


TEXTS = {
    "context": context_text,
    "worker": worker_text,
    "region": region_text,
    "remote region": remote_text,
    "counter": counter_text,
    "team": team_text,
}


def handle_text(handle, wanted):
    """What a handle names. `wanted`: the type that its variable has."""
    if handle == 0:
        return "null handle"
    try:
        directory = Directory()
        kind, is_open, fields = directory.handle(handle)
        if kind is None:
            return f"{handle:#x}: no handle"
        if kind != wanted:
            return f"{handle:#x}: handle of a {kind}, and not of a {wanted}"
        if not is_open:
            return f"{handle:#x}: stale: its {kind} is closed, or was open in another process"
        return TEXTS[kind](directory, handle, fields) if kind in TEXTS else f"{kind}, open"
    except (NoHeddle, Absent, KeyError):
        return f"{handle:#x}"


class HandlePrinter:
    """heddle_worker and its like."""

    wanted = ""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return handle_text(int(self.value["id"]), self.wanted)


def handle_printer(kind):
    return type("Handle", (HandlePrinter,), {"wanted": kind})


class RemotePrinter:
    """heddle_remote: a byte of a peer's region."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        region = handle_text(int(self.value["region"]["id"]), "remote region")
        return f"byte {int(self.value['offset'])} of {region}"


class PeerPrinter:
    """heddle_peer."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return source_text(int(self.value["rank"]) << 32 | int(self.value["worker"]))


class WantedPrinter:
    """heddle_wanted: which messages a receive takes."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        source = self.value["source"]
        return f"{tag_text(int(self.value['tag']), int(self.value['mask']))} from " + \
            source_text(int(source["rank"]) << 32 | int(source["worker"]))


class ReceivePrinter:
    """heddle_receive: its status, and what has come."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        status = self.value["status"]
        if int(status) == 1:
            return "HEDDLE_POSTED: it waits, or its data is on the way"
        source = self.value["source"]
        return f"{status}: {int(self.value['bytes'])} bytes with tag {int(self.value['tag'])} from " + \
            source_text(int(source["rank"]) << 32 | int(source["worker"]))


def printers():
    found = gdb.printing.RegexpCollectionPrettyPrinter("heddle")
    handles = {
        "context": "context", "worker": "worker", "region": "region", "remote_region": "remote region",
        "counter": "counter", "inproc_job": "inproc job", "team": "team", "collective": "collective operation",
        "partitioned": "partitioned operation"
    }
    for name, kind in handles.items():
        found.add_printer(f"heddle_{name}", f"^heddle_{name}$", handle_printer(kind))
    for name, printer in (("remote", RemotePrinter), ("peer", PeerPrinter), ("wanted", WantedPrinter),
                          ("receive", ReceivePrinter)):
        found.add_printer(f"heddle_{name}", f"^heddle_{name}$", printer)
    return found


Prefix()
Waits()
gdb.printing.register_pretty_printer(None, printers(), replace=True)
