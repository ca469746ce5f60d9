"""Sum types with something to say about each of their variants."""

import re
from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import block, snake
from mens_pipeline.corpus.synthesis.phrasing import listed


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant and its text: a fixed beginning, then the first of its values.

    Attributes:
        name: The constructor.
        fields: Names and types of its values; the second is not part of the text.
        prefix: What the text begins with.
        samples: One Vox literal for each field.
    """

    name: str
    fields: tuple[tuple[str, str], ...]
    prefix: str
    samples: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """As a type declares it."""
        inner = ", ".join(f"{name}: {kind}" for name, kind in self.fields)
        return f"{self.name}({inner})" if inner else self.name

    @property
    def arm(self) -> str:
        """The match arm that gives the text."""
        if not self.fields:
            return f'{self.name} => "{self.prefix}"'
        (first, kind), *others = self.fields
        pattern = ", ".join([first, *("_" for _ in others)])
        value = first if kind == "str" else f"str({first})"
        return f'{self.name}({pattern}) => "{self.prefix}" + {value}'

    @property
    def told(self) -> str:
        """The text in words."""
        first = f" followed by `{self.fields[0][0]}`" if self.fields else ""
        return f'`{self.name}` gives "{self.prefix}"{first}'

    @property
    def sample(self) -> str:
        """An expression that builds one."""
        return f"{self.name}({', '.join(self.samples)})" if self.samples else self.name

    @property
    def sample_text(self) -> str:
        """The text of that one, as a Vox literal."""
        return f'"{self.prefix}{self.samples[0].strip(chr(34))}"' if self.samples else f'"{self.prefix}"'


@dataclass(frozen=True, slots=True)
class SumType:
    """A type that is one of several variants.

    Attributes:
        name: The type name.
        variants: At least two.
    """

    name: str
    variants: tuple[Variant, ...]

    @property
    def code(self) -> str:
        """The declaration."""
        return choice_type(self.name, [variant.declaration for variant in self.variants])

    @property
    def variable(self) -> str:
        """A parameter of this type."""
        return snake(self.name).rpartition("_")[2]

    @property
    def told(self) -> str:
        """Its variants in words."""
        return listed([f"`{variant.declaration}`" for variant in self.variants])

    def describe(self, name: str) -> str:
        """Format the function that gives the text of each variant.

        Args:
            name: What to call it.
        """
        arms = [variant.arm for variant in self.variants]
        return block(f"fn {name}({self.variable}: {self.name}) to str", block(f"return match {self.variable}", *arms))


def choice_type(name: str, variants: list[str], keyword: str = "type") -> str:
    """Format a sum type with one variant a line.

    Args:
        name: The type name.
        variants: Their declarations.
        keyword: `type` or `pub type`.
    """
    return "\n".join([f"{keyword} {name} =", *(f"    | {variant}" for variant in variants)])


_SUMS: Final = """
PaymentMethod = Card(last_four: str)=card ending in ~"4242"; Cash=cash; Transfer(iban: str)=transfer to ~"FI21"; Voucher(code: str)=voucher ~"V-77"
DeliveryOption = Pickup(shop: str)=pick up at ~"Harbour"; Courier(street: str, fee_cents: int)=courier to ~"Mill Lane",450; Locker(number: int)=locker ~12; Digital=by email
ContactWay = Phone(number: str)=call ~"555-0142"; Email(address: str)=write to ~"ines@example.org"; Visit(office: str)=visit ~"Turku"; NoContact=do not disturb
SearchOutcome = Found(title: str, page: int)=found ~"Dune",3; NothingFound=nothing found; TooMany(hits: int)=too many hits: ~512
UploadStatus = Waiting=waiting; Uploading(percent: int)=percent done: ~40; Stored(url: str)=stored at ~"/files/7"; Refused(reason: str)=refused: ~"too large"
Discount = NoDiscount=full price; Percent(rate: int)=percent off: ~15; Fixed(cents: int)=cents off: ~500; Coupon(code: str, percent: int)=coupon ~"MAY",10
SensorReading = Temperature(celsius: int)=degrees: ~21; Humidity(percent: int)=humidity: ~60; Offline=no signal; Fault(code: int)=fault ~17
LoanDecision = Granted(days: int)=granted, days: ~14; Declined(reason: str)=declined: ~"fines open"; Queued(position: int)=queue position ~3
TripLeg = Train(number: str)=train ~"IC 44"; Ferry(ship: str, deck: int)=ferry ~"Aurora",3; Walk(metres: int)=metres on foot: ~400; Taxi=taxi
AlarmAction = Ignore=nothing to do; Notify(person: str)=notify ~"Omar"; CallOut(team: str, minutes: int)=send ~"Crew B",20; ShutDown=shut down
QuizAnswer = Skipped=skipped; Choice(letter: str)=chose ~"B"; Number(value: int)=answered ~42; FreeText(words: str)=wrote ~"the tide"
SeatRequest = AnySeat=any seat; Window(row: int)=window seat in row ~7; Aisle(row: int)=aisle seat in row ~12; Box(label: str, guests: int)=box ~"C",4
StockChange = Received(pieces: int)=received: ~40; Sold(pieces: int)=sold: ~3; Counted(pieces: int, counter: str)=counted: ~37,"Mai"; Scrapped=scrapped
DoorEvent = Opened(person: str)=opened by ~"Ruth"; Forced=forced open; Closed=closed; Jammed(floor: int)=jammed on floor ~2
MembershipPlan = Free=free plan; Monthly(cents: int)=monthly, cents: ~900; Yearly(cents: int)=yearly, cents: ~9000; Invited(host: str)=invited by ~"Nora"
WeatherWarning = NoWarning=no warning; Wind(speed: int)=wind up to ~25; Flood(river: str)=flood on ~"Aura"; Frost(celsius: int, hours: int)=frost down to ~-8,6
"""  # noqa: E501 - a line each


def _variant(text: str) -> Variant:
    found = re.fullmatch(r"(\w+)(?:\((.*?)\))?=([^~]*)(?:~(.*))?", text)
    assert found is not None, text  # noqa: S101 - our own table
    name, fields, prefix, samples = found.groups()
    pairs = [tuple(field.split(": ")) for field in fields.split(", ")] if fields else []
    return Variant(
        name, tuple((pair[0], pair[1]) for pair in pairs), prefix, tuple(samples.split(",") if samples else ())
    )


def _sum_type(line: str) -> SumType:
    name, _, variants = line.partition(" = ")
    return SumType(name, tuple(_variant(variant) for variant in variants.split("; ")))


SUM_TYPES: Final[tuple[SumType, ...]] = tuple(_sum_type(line) for line in _SUMS.strip().splitlines())
"""Types whose variants carry values."""

ENUMS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("OrderStatus", ("Placed", "Paid", "Packed", "Shipped", "Delivered")),
    ("Priority", ("Low", "Normal", "High", "Urgent")),
    ("TicketPhase", ("Opened", "Assigned", "Solved", "Closed")),
    ("LoanPhase", ("Requested", "Lent", "Overdue", "Returned")),
    ("Role", ("Guest", "Member", "Editor", "Admin")),
    ("RepairStep", ("Reported", "Planned", "Started", "Repaired")),
    ("PlantStage", ("Seed", "Sprout", "Bloom", "Fruit")),
    ("PrintQuality", ("Draft", "Standard", "Fine", "Photo")),
    ("CoffeeSize", ("Small", "Medium", "Large", "Huge")),
    ("DoorMode", ("Locked", "Closed", "Ajar", "Wide")),
    ("ReadingGoal", ("Daily", "Weekly", "Monthly", "Yearly")),
    ("BeltColour", ("White", "Yellow", "Green", "Brown", "Black")),
    ("InvoiceStage", ("Drafted", "Sent", "Reminded", "Settled")),
    ("TideLevel", ("Ebb", "Rising", "Flood", "Spring")),
    ("HeatSetting", ("Off", "Eco", "Comfort", "Boost")),
    ("BadgeRank", ("Bronze", "Silver", "Gold", "Platinum")),
    ("ManuscriptStage", ("Sketched", "Written", "Edited", "Printed")),
    ("SupportTier", ("Basic", "Plus", "Premium", "Partner")),
    ("WaterQuality", ("Clean", "Fair", "Cloudy", "Polluted")),
    ("VisaStage", ("Applied", "Checked", "Interviewed", "Granted")),
)
"""Types whose variants carry nothing, in their natural order."""

CYCLES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("TrafficLight", ("Red", "RedAmber", "Green", "Amber")),
    ("Season", ("Spring", "Summer", "Autumn", "Winter")),
    ("Meal", ("Breakfast", "Lunch", "Supper")),
    ("Direction", ("North", "East", "South", "West")),
    ("MoonPhase", ("NewMoon", "Waxing", "FullMoon", "Waning")),
    ("Weekday", ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")),
    ("Shift", ("Early", "Late", "Night")),
    ("FieldUse", ("Wheat", "Clover", "Potatoes", "Fallow")),
    ("WashCycle", ("Idle", "Washing", "Rinsing", "Spinning")),
)
"""Types whose last variant is followed by the first."""


def enum_of(random: Random) -> tuple[str, tuple[str, ...]]:
    """Draw an enumeration and the first few of its variants; of a cycle, all of them.

    Args:
        random: Decides which, and how many: at least three.
    """
    name, variants = random.choice(ENUMS + CYCLES)
    return name, variants if (name, variants) in CYCLES else variants[: random.randint(3, len(variants))]


def sum_type_of(random: Random) -> SumType:
    """Draw a sum type with some of its variants.

    Args:
        random: Decides which, and how many: at least two, in their own order.
    """
    whole = random.choice(SUM_TYPES)
    kept = random.sample(whole.variants, random.randint(max(2, len(whole.variants) - 2), len(whole.variants)))
    return SumType(whole.name, tuple(variant for variant in whole.variants if variant in kept))
