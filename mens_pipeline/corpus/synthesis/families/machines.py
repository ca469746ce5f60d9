"""Families of state machines and actors."""

from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family
from mens_pipeline.corpus.synthesis.phrasing import ask, listed, one_in, pick, quoted
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES


@dataclass(frozen=True, slots=True)
class Life:
    """The life of something: states, the events between them, and a way out.

    Attributes:
        name: The type name.
        states: In order.
        events: One between each state and the next.
        escape: The event that can strike from anywhere.
        ruined: The state it leads to.
        payload: A field of the second state, which its event carries.
    """

    name: str
    states: tuple[str, ...]
    events: tuple[str, ...]
    escape: str
    ruined: str
    payload: str


_LIVES: Final = """
ParcelTrip Registered Collect Collected Load InTransit HandOver Delivered | Lose Lost | depot
LoanRequest Requested Approve Approved Lend Lent Return Returned | Refuse Refused | due_on
KilnFiring Waiting Start Heating ReachTarget Cooling Unload Unloaded | Abort Aborted | target
GrantReview Submitted Score Scored Decide Decided Pay Paid | Withdraw Withdrawn | points
InvoiceLife Drafted Send Sent Remind Reminded Settle Settled | Cancel Cancelled | due_on
RepairJob Reported Plan Planned Begin Started Finish Repaired | GiveUp Scrapped | technician
FlightBooking Searching Hold Held Confirm Confirmed Board Boarded | Expire Expired | seat
PlantBed Empty Sow Sown Sprout Growing Harvest Harvested | Freeze Frozen | crop
ExamAttempt Announced Open Opened HandIn HandedIn Mark Marked | Fail Failed | minutes
PrintJob Queued Assign Printing Complete Printed Fetch Fetched | Jam Jammed | printer
MembershipLife Applied Invite Invited Join Active Leave Left | Ban Banned | sponsor
ShowTicket Offered Reserve Reserved Buy Bought Scan Used | Void Voided | seat
WasteBin Fresh Fill Full Collect Collected Wash Clean | Break Broken | kilos
VisaCase Filed Examine Examined Invite Interviewed Issue Issued | Reject Rejected | officer
AuctionLot Listed OpenBids Bidding Hammer Sold Pay Settled | Pull Withdrawn | price
Manuscript Sketched Write Drafted Edit Edited Print Printed | Shelve Shelved | editor
BeeSwarm Spotted Catch Caught Rehouse Housed Inspect Settled | FlyOff Gone | site
PatientVisit Booked CheckIn Waiting Call Treated Bill Billed | Miss Missed | room
DataImport Queued Read Reading Check Checked Write Stored | Stop Stopped | rows
SupportCase Opened Assign Assigned Solve Solved Close Closed | Drop Dropped | assignee
"""


def _life(line: str) -> Life:
    chain, escape, payload = (part.split() for part in line.split(" | "))
    return Life(chain[0], tuple(chain[1::2]), tuple(chain[2::2]), escape[0], escape[1], payload[0])


LIVES: Final[tuple[Life, ...]] = tuple(_life(line) for line in _LIVES.strip().splitlines())
"""Things that pass through states."""

_LASTING: Final = frozenset(("KilnFiring", "PlantBed", "MembershipLife"))
"""Lives that make no sense without their last state."""

_NUMBERS: Final = frozenset(("target", "points", "minutes", "kilos", "price", "rows"))


def life_of(random: Random) -> Life:
    """Draw a life with three or four of its states.

    Args:
        random: Decides which and how many.
    """
    life = random.choice(LIVES)
    length = len(life.states) - (life.name not in _LASTING and one_in(random, 2))
    return Life(life.name, life.states[:length], life.events[: length - 1], life.escape, life.ruined, life.payload)


def machine(life: Life, *, escape: bool, payload: bool, keyword: str = "state_machine") -> str:
    """Format the state machine of a life; its last state and the ruined one are terminal.

    Args:
        life: Whose machine it is.
        escape: Whether it can end early.
        payload: Whether the second state carries its field.
        keyword: `state_machine`, with `partial` or `pub` in front if wanted.
    """
    kind = "int" if life.payload in _NUMBERS else "str"
    carried = {life.states[1]: f"({life.payload}: {kind})"} if payload else {}
    states = [f"state {state}{carried.get(state, '')}" for state in life.states[:-1]]
    states.append(f"terminal state {life.states[-1]}")
    states += [f"terminal state {life.ruined}"] if escape else []
    moves = []
    for place, event in enumerate(life.events):
        value = f"({life.payload})" if payload and place == 0 else ""
        source = f"{life.states[place]}(_)" if life.states[place] in carried else life.states[place]
        moves.append(f"on {event}{value} from {source} -> {life.states[place + 1]}{value}")
    moves += [f"on {life.escape} from any -> {life.ruined}"] if escape else []
    return block(f"{keyword} {life.name}", *states, "", *moves)


def told_machine(life: Life, *, escape: bool, payload: bool) -> tuple[str, ...]:
    """Sentences that say all of a machine.

    Args:
        life: Whose machine it is.
        escape: Whether it can end early.
        payload: Whether the second state carries its field.
    """
    kind = "int" if life.payload in _NUMBERS else "str"
    moves = [
        f"`{event}` leads from `{life.states[k]}` to `{life.states[k + 1]}`" for k, event in enumerate(life.events)
    ]
    final = [life.states[-1], *([life.ruined] if escape else [])]
    return (
        (
            f"The states are {quoted([*life.states, *([life.ruined] if escape else [])])}; {quoted(final)} "
            f"{'are' if escape else 'is'} terminal."
        ),
        f"{listed(moves)}." + (f" `{life.escape}` leads from any state to `{life.ruined}`." if escape else ""),
        f"`{life.states[1]}` carries `{life.payload}: {kind}`, which the event `{life.events[0]}` brings."
        if payload
        else "",
    )


def _linear(random: Random) -> Draft:
    life = life_of(random)
    escape = one_in(random, 2)
    partial = one_in(random, 3)
    public = not partial and one_in(random, 3)
    keyword = "partial state_machine" if partial else "pub state_machine" if public else "state_machine"
    extra = "Declare it partial." if partial else "Make it public." if public else ""
    details = (*told_machine(life, escape=escape, payload=False), extra)
    code = machine(life, escape=escape, payload=False, keyword=keyword)
    return Draft(ask(random, f"a state machine `{life.name}`", *details), (code,))


def _payload(random: Random) -> Draft:
    life = life_of(random)
    escape = not one_in(random, 3)
    partial = one_in(random, 2)
    public = not partial and one_in(random, 3)
    keyword = "partial state_machine" if partial else "pub state_machine" if public else "state_machine"
    extra = "It is a partial machine." if partial else "It is public." if public else ""
    details = (*told_machine(life, escape=escape, payload=True), extra)
    code = machine(life, escape=escape, payload=True, keyword=keyword)
    return Draft(ask(random, f"a state machine `{life.name}` with a state that carries a value", *details), (code,))


_DEVICES: Final = (
    ("ParkingBarrier", "Lowered", "Raised", "AcceptTicket", "CarPassed"), ("Door", "Closed", "Opened", "Push", "Pull"),
    ("Lamp", "Off", "On", "SwitchOn", "SwitchOff"), ("Turnstile", "Locked", "Unlocked", "InsertCoin", "PushArm"),
    ("Valve", "Shut", "Flowing", "TurnLeft", "TurnRight"), ("Recorder", "Idle", "Recording", "Press", "Stop"),
    ("Drawbridge", "Down", "Up", "ShipArrives", "ShipPassed"),
    ("Heater", "Cold", "Heating", "BelowTarget", "AboveTarget"),
    ("Sluice", "Sealed", "Draining", "WaterHigh", "WaterLow"), ("Shop", "Shuttered", "Trading", "OpenUp", "CloseUp"),
)  # fmt: skip


def _total(random: Random) -> Draft:
    name, first, second, there, back = random.choice(_DEVICES)
    name = f"{name}{random.choice(('', 'Control', 'Machine', 'Mode'))}"
    grouped = one_in(random, 2)
    broken = one_in(random, 2)
    moves = [f"on {there} from {first} -> {second}", f"on {there} from {second} -> {second}"]
    others = [f"on {back} from {second} -> {first}", f"on {back} from {first} -> {first}"]
    public = one_in(random, 4)
    end = ["terminal state Broken"] if broken else []
    lines = [*moves, *(["", *others] if grouped else others), *(["on Damage from any -> Broken"] if broken else [])]
    head = f"{'pub ' if public else ''}state_machine {name}"
    code = block(head, f"state {first}", f"state {second}", *end, "", *lines)
    details = (
        f"It has the states `{first}` and `{second}`"
        + (" and a terminal state `Broken`, which the event `Damage` reaches from anywhere." if broken else "."),
        (
            f"`{there}` leads to `{second}`, `{back}` leads back to `{first}`; write out that either event leaves the "
            f"machine "
            "where it is when it is there already."
        ),
        "It is public." if public else "",
    )
    return Draft(ask(random, f"a state machine `{name}`", *details), (code,))


_DIALS: Final = (
    ("Dimmer", "level", "brighter", "darker", 0, 10), ("Thermostat", "degrees", "raise_target", "lower_target", 5, 30),
    ("Volume", "volume", "louder", "quieter", 0, 100), ("Speed", "speed", "faster", "slower", 0, 50),
    ("Blind", "percent", "open_more", "close_more", 0, 100), ("Fan", "step", "stronger", "weaker", 0, 5),
    ("Zoom", "factor", "closer", "farther", 1, 20), ("Tank", "litres", "fill", "drain", 0, 500),
)  # fmt: skip


def _dial(random: Random) -> Draft:
    name, value, up, down, low, high = random.choice(_DIALS)
    step = random.choice((1, 1, 2, 5))
    name = f"{name}{random.choice(('', 'Control', 'Actor', 'Dial'))}"
    more = block(
        f"on {up}({value}: int) to int", f"return if {value} + {step} < {high} {{ {value} + {step} }} else {{ {high} }}"
    )
    less = block(
        f"on {down}({value}: int) to int", f"return if {value} - {step} > {low} {{ {value} - {step} }} else {{ {low} }}"
    )
    reset, base = one_in(random, 3), random.choice((low, high))
    handlers = (more, less, *([block("on reset() to int", f"return {base}")] if reset else []))
    details = (
        (
            f"`{up}({value}: int) to int` answers with the value plus {step}, at most {high}; `{down}({value}: int) to "
            f"int` with the "
            f"value minus {step}, at least {low}."
        ),
        f"`reset() to int` answers with {base}." if reset else "",
    )
    return Draft(ask(random, f"an actor `{name}`", *details), (block(f"actor {name}", *handlers),))


def _recorder(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    group, number = entity.group, entity.number
    row = f"{entity.name}Entry"
    name = f"{entity.name}{random.choice(('Ledger', 'Recorder', 'Keeper', 'Desk'))}"
    record, count = random.choice((("record", "count"), ("add", "how_many"), ("note", "entries")))
    value = f"{group.name}: {group.name}, {number.name}: {number.name}"
    writing = block(f"on {record}({group.declaration}, {number.declaration})", f"db.{row}.insert({{ {value} }})")
    reading = block(
        f"on {count}({group.declaration}) to int", f"return len(db.{row}.filter({{ {group.name}: {group.name} }}))"
    )
    sentences = (
        f"The table `{row}` has the fields `{group.declaration}` and `{number.declaration}`.",
        (
            f"The handler `{record}({group.declaration}, {number.declaration})` inserts a row and returns nothing; "
            f"`{count}({group.declaration}) to int` answers with the number of rows with that `{group.name}`."
        ),
    )
    what = pick(
        random, f"an actor `{name}` that keeps its data in a table", f"a table and an actor `{name}` that writes to it"
    )
    declarations = (
        block(f"@table type {row}", group.declaration, number.declaration), block(f"actor {name}", writing, reading)
    )  # fmt: skip
    return Draft(ask(random, what, *sentences, domain=entity.domain), declarations)


_VOICES: Final = (
    ("Doorbell", "ring", "visitor", "ding dong, ", " is here", ("the postman", "Aunt Mai", "the plumber")),
    ("Porter", "greet", "guest", "welcome, ", "", ("Nora", "Samir", "Uma")),
    ("Echo", "say", "phrase", "you said ", "", ("good night", "hello", "see you")),
    ("Announcer", "call_out", "train", "now arriving: ", "", ("IC 44", "R 7", "S 12")),
    ("Waiter", "order", "dish", "one ", " for the kitchen", ("plum tart", "leek soup", "green curry")),
    ("Clerk", "stamp", "form_name", "stamped: ", "", ("A-38", "B-2", "C-11")),
    ("Guide", "show", "place", "this way to the ", "", ("harbour", "old mill", "library")),
    ("Librarian", "lend", "title", "enjoy ", ", back in two weeks", ("Emma", "Dune", "Persuasion")),
    ("Gardener", "water", "bed", "watering ", "", ("the beans", "the roses", "bed 4")),
    ("Referee", "whistle", "player", "foul by ", "", ("Tom", "Jonas", "number 9")),
)


def _driven(random: Random) -> Draft:
    name, event, param, before, after, samples = random.choice(_VOICES)
    answering = one_in(random, 2)
    line = f'"{before}" + {param}' + (f' + "{after}"' if after else "")
    handler = (
        block(f"on {event}({param}: str) to str", f"return {line}")
        if answering
        else block(f"on {event}({param}: str)", f"print({line})")
    )
    main, variable = random.choice(("main", "demo", "start")), random.choice((name.lower(), "actor_ref", "helper"))
    sent = random.sample(samples, random.randint(1, 2))
    calls = [f'{variable}.{event}("{sample}")' for sample in sent]
    driver = block(
        f"fn {main}() to Unit",
        f"let {variable} = spawn({name})",
        *(f"print({call})" if answering else call for call in calls),
    )
    said = f'"{before}" followed by `{param}`' + (f' and "{after}"' if after else "")
    messages = listed([f'"{sample}"' for sample in sent])
    each = "each answer" if len(sent) > 1 else "the answer"
    details = (
        (
            f"Its handler `{event}({param}: str){' to str' if answering else ''}` "
            f"{'answers with' if answering else 'prints'} {said}."
        ),
        f"`{main}() to Unit` spawns the actor as `{variable}` and sends it `{event}` with {messages}"
        + (f", printing {each}." if answering else "."),
    )
    return Draft(
        ask(random, f"an actor `{name}` and a function that uses it", *details),
        (block(f"actor {name}", handler), driver),
    )


FAMILIES: Final[tuple[Family, ...]] = (
    family("state_machine/linear", _linear),
    family("state_machine/payload", _payload),
    family("state_machine/total", _total),
    family("actor/dial", _dial),
    family("actor/recorder", _recorder),
    family("actor/driven", _driven),
)
"""What has states, and what answers messages."""
