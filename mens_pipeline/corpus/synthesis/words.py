"""What programs are about: entities with fields and fitting values, in twenty domains."""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an entity.

    Attributes:
        name: As written in Vox.
        type: `str`, `int`, `bool` or `float`.
        examples: Vox literals that fit it, at least two.
    """

    name: str
    type: str
    examples: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """The field as a struct, a table or a parameter list declares it."""
        return f"{self.name}: {self.type}"

    @property
    def words(self) -> str:
        """The name as a person says it: `due_on` is `due on`."""
        return self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing that an application stores.

    Attributes:
        domain: A key of `DOMAINS`.
        name: The type name: `ToolLoan`.
        plural: Several of them, in words: `tool loans`.
        fields: Text that names one, text that groups them, a number, a flag, and then some more.
    """

    domain: str
    name: str
    plural: str
    fields: tuple[Field, ...]

    @property
    def label(self) -> Field:
        """The text that tells one from another, such as a title."""
        return self.fields[0]

    @property
    def group(self) -> Field:
        """The text that several have in common, such as an author."""
        return self.fields[1]

    @property
    def number(self) -> Field:
        """The whole number worth adding up or comparing."""
        return self.fields[2]

    @property
    def flag(self) -> Field:
        """The yes or no that separates them."""
        return self.fields[3]

    @property
    def noun(self) -> str:
        """One of them, in words: `tool loan`."""
        return self.variable.replace("_", " ")

    @property
    def variable(self) -> str:
        """One of them as a Vox variable: `tool_loan`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @property
    def short(self) -> str:
        """One of them as a loop variable: `loan`."""
        return self.variable.rpartition("_")[2]

    @property
    def collection(self) -> str:
        """Several of them as a Vox variable: `tool_loans`."""
        return self.plural.replace(" ", "_")


DOMAINS: Final[dict[str, tuple[str, ...]]] = {
    "library": ("a public library", "a library app", "a lending library"),
    "billing": ("an invoicing tool", "a small accounting app", "a bookkeeping service"),
    "clinic": ("a clinic's booking system", "a medical practice", "a health centre"),
    "vet": ("a veterinary clinic", "an animal shelter", "a vet's practice"),
    "school": ("a school portal", "a course platform", "an evening school"),
    "recipes": ("a recipe app", "a cooking school", "a food blog"),
    "restaurant": ("a restaurant", "a bistro", "a hotel restaurant"),
    "fitness": ("a sports club", "a running club", "an athletics team"),
    "travel": ("a travel agency", "a trip planner", "a holiday portal"),
    "ferries": ("a ferry company", "a harbour office", "a sailing timetable"),
    "warehouse": ("a warehouse", "a stock-keeping app", "a parts depot"),
    "events": ("an event calendar", "an event organiser", "a festival"),
    "housing": ("a housing association", "a property manager", "a landlord"),
    "garden": ("a community garden", "an allotment club", "a market garden"),
    "support": ("a help desk", "a customer support team", "an IT department"),
    "parcels": ("a parcel service", "a courier", "a delivery company"),
    "bikes": ("a bike rental", "a city bike scheme", "a cargo bike fleet"),
    "rides": ("a carpool app", "a ride-sharing group", "a commuter club"),
    "nature": ("a nature reserve", "a national park", "a hiking club"),
    "weather": ("a weather station network", "a weather service", "a climate archive"),
}
"""Domain -> who would want such a program; each fits after `for`."""

_ENTITIES: Final = """
library Book books
  title=Emma|Dune|Persuasion; author=Jane Austen|Frank Herbert|Ursula Le Guin; pages:int=180|320|540; on_loan:bool
  shelf=A3|B7|C2; published_in:int=1815|1965|2004; isbn=9780140439687|9780441013593
library ToolLoan tool loans
  tool=drill|ladder|chainsaw; borrower=Ines Aalto|Omar Haddad|Ruth Klein; days_out:int=3|9|21; returned:bool
  lent_on=2026-03-02|2026-04-18; note=blade is new|handle is loose
library Member members
  name=Ines Aalto|Omar Haddad|Ruth Klein; branch=Harbour|Old Town|Riverside; open_loans:int=0|2|5; active:bool
  email=ines@example.org|omar@example.org; joined_on=2021-05-04|2025-11-30
library Magazine magazines
  title=Wild Coast|Clockwork|Weekly Chess; publisher=Northern Press|Mill House; copies:int=1|3|12; archived:bool
  language=Finnish|German|English; shelf=M1|M4
billing Invoice invoices
  number=INV-1001|INV-1002|INV-2040; customer=Lumen Ltd|Birch and Sons|Halden AB; amount:int=1200|4500|89900; paid:bool
  due_on=2026-03-31|2026-06-15; currency=EUR|SEK
billing Expense expenses
  description=train ticket|printer paper|hotel room; team=Sales|Design|Support; cents:int=950|12400|38000; approved:bool
  spent_on=2026-01-14|2026-02-20; claimant=Ines Aalto|Omar Haddad
billing Subscription subscriptions
  plan=Solo|Crew|Studio; customer=Lumen Ltd|Birch and Sons|Halden AB; monthly_cents:int=900|2400|7900; cancelled:bool
  renews_on=2026-05-01|2026-09-01; seats:int=1|5|25
clinic Appointment appointments
  patient=Nora Lind|Samir Costa|Eva Brandt; doctor=Dr Weiss|Dr Okafor|Dr Salo; minutes:int=15|30|45; confirmed:bool
  day=2026-03-03|2026-03-04; room=R1|R4; reason=check-up|vaccination
clinic Prescription prescriptions
  medicine=ibuprofen|amoxicillin|insulin; patient=Nora Lind|Samir Costa|Eva Brandt; dose_mg:int=200|500|850; filled:bool
  issued_on=2026-02-11|2026-04-02; doctor=Dr Weiss|Dr Okafor
vet AnimalPatient animal patients
  name=Momo|Bella|Rufus; species=cat|dog|rabbit; weight_grams:int=1800|4200|23500; vaccinated:bool
  owner=Ines Aalto|Ruth Klein; born_in:int=2017|2022
school Course courses
  title=Algebra|Pottery|Creative Writing; teacher=Ms Arvid|Mr Patel|Dr Sun; seats:int=8|16|30; full:bool
  starts_on=2026-09-01|2026-10-12; room=101|Annex; fee_cents:int=0|4500|12000
school Student students
  name=Nia Berg|Tom Okoro|Uma Rao; class_name=7A|8B|9C; points:int=41|67|92; graduated:bool
  email=nia@example.org|tom@example.org; tutor=Ms Arvid|Mr Patel
school HomeworkTask homework tasks
  title=Tide essay|Fractions|Map of Asia; subject=Geography|Mathematics|English; points:int=5|10|20; handed_in:bool
  due_on=2026-02-27|2026-03-20; teacher=Ms Arvid|Dr Sun
recipes Recipe recipes
  title=Leek soup|Plum tart|Rye bread; cuisine=French|Finnish|Lebanese; minutes:int=25|50|140; vegetarian:bool
  author=Ines Aalto|Eva Brandt; servings:int=2|4|8
restaurant TableBooking table bookings
  guest=Nora Lind|Samir Costa|Halden family; evening=2026-05-01|2026-05-02|2026-06-20; people:int=2|4|9; confirmed:bool
  phone=555-0142|555-0177; note=by the window|two children
restaurant Dish dishes
  name=Onion ring|Green curry|Lemon sorbet; course=starter|main|dessert; price_cents:int=550|1490|720; sold_out:bool
  allergens=nuts|milk|none; chef=Mai|Jonas
fitness Workout workouts
  title=Morning row|Hill sprints|Core circuit; athlete=Nia Berg|Tom Okoro|Uma Rao; minutes:int=20|45|90; completed:bool
  day=2026-01-08|2026-01-11; heart_rate:int=118|141|163
fitness ClubMember club members
  name=Nia Berg|Tom Okoro|Uma Rao; team=Juniors|Masters|Trail; visits:int=3|18|40; paid:bool
  email=nia@example.org|uma@example.org; joined_on=2023-01-09|2025-08-21
fitness Race races
  title=Harbour mile|Night trail|Island half; town=Turku|Porto|Bergen; metres:int=1609|10000|21097; finished:bool
  held_on=2026-06-06|2026-08-29; entry_cents:int=1500|4200
travel Trip trips
  title=Fjord week|Lisbon weekend|Rail tour; destination=Bergen|Lisbon|Vienna; nights:int=2|5|9; booked:bool
  traveller=Samir Costa|Eva Brandt; leaves_on=2026-05-14|2026-07-03
ferries Sailing sailings
  code=FB12|FB19|HX3; route=Turku to Mariehamn|Kiel to Oslo|Porto to Funchal; seats_left:int=0|12|140; cancelled:bool
  departs_on=2026-04-09|2026-04-10; ship=Aurora|Petrel
travel Cabin cabins
  name=Larch|Otter|North Star; region=Lapland|Alps|Lakeland; beds:int=2|4|8; heated:bool
  price_cents:int=8900|15400; host=Ruth Klein|Jonas Frey
warehouse StockItem stock items
  sku=BX-100|BX-220|LT-7; supplier=Halden AB|Northern Bolts|Lumen Ltd; quantity:int=0|14|350; fragile:bool
  bin=A-01|C-14; unit_cents:int=35|1290
warehouse Shipment shipments
  code=SH-301|SH-302|SH-417; carrier=Swift Freight|Blue Van|Polar Post; pallets:int=1|6|22; delivered:bool
  leaves_on=2026-02-03|2026-02-17; dock=D1|D5
warehouse SparePart spare parts
  name=fan belt|brake pad|hinge; machine=Press 4|Forklift|Mixer; minimum:int=2|5|20; discontinued:bool
  shelf=S1|S9; supplier=Northern Bolts|Halden AB
events Concert concerts
  title=Winter Strings|Brass Night|Open Stage; venue=Old Mill|Harbour|Arena; tickets_left:int=0|34|410; sold_out:bool
  held_on=2026-12-04|2026-11-20; price_cents:int=1900|4500
events Ticket tickets
  code=TK-88|TK-91|TK-140; holder=Nora Lind|Omar Haddad|Uma Rao; price_cents:int=1900|2500|4500; scanned:bool
  seat=A12|F3; event=Winter Strings|Brass Night
events Speaker speakers
  name=Eva Brandt|Jonas Frey|Mai Sato; topic=Soil|Compilers|Tides; minutes:int=20|30|45; confirmed:bool
  room=Main|Attic; company=Halden AB|Lumen Ltd
housing Flat flats
  address=Mill Lane 4|Quay Road 17|Hill Street 2; district=Harbour|Old Town|Riverside; rooms:int=1|3|5; rented:bool
  rent_cents:int=64000|118000; caretaker=Jonas Frey|Ruth Klein
housing RepairRequest repair requests
  problem=leaking tap|broken lock|cold radiator; address=Mill Lane 4|Quay Road 17|Hill 2; urgency:int=1|3|5; solved:bool
  reported_on=2026-01-19|2026-02-07; tenant=Samir Costa|Nora Lind
housing Tenant tenants
  name=Samir Costa|Nora Lind|Tom Okoro; building=North|South|Gatehouse; months_left:int=1|8|24; notified:bool
  phone=555-0121|555-0133; flat_number:int=4|17
garden Plot plots
  code=P-03|P-11|P-27; gardener=Ines Aalto|Tom Okoro|Eva Brandt; square_metres:int=12|30|55; watered:bool
  crop=beans|squash|kale; fee_cents:int=2500|4000
garden Seedling seedlings
  species=tomato|basil|larkspur; tray=T1|T2|T5; height_mm:int=15|42|90; potted:bool
  sown_on=2026-02-20|2026-03-08; price_cents:int=180|250
garden Beehive beehives
  code=H-1|H-4|H-9; site=Orchard|Roof|Meadow; frames:int=4|8|11; queen_seen:bool
  inspected_on=2026-05-03|2026-05-17; keeper=Ruth Klein|Omar Haddad
support SupportTicket support tickets
  subject=Login fails|No printer|Refund; customer=Lumen Ltd|Halden AB|Mill House; priority:int=1|2|4; resolved:bool
  opened_on=2026-01-05|2026-03-22; assignee=Mai Sato|Jonas Frey
support Laptop laptops
  serial=LX-4410|LX-4411|LX-5093; department=Sales|Design|Research; age_months:int=5|19|47; encrypted:bool
  model=Aero 13|Block 15; owner=Nia Berg|Omar Haddad
support Article articles
  title=Reset password|Set up VPN|Order badges; section=Logins|Network|Office; views:int=12|230|1840; published:bool
  author=Mai Sato|Jonas Frey; updated_on=2025-12-01|2026-02-14
parcels Parcel parcels
  code=PX-771|PX-802|PX-955; recipient=Nora Lind|Omar Haddad|Uma Rao; grams:int=120|980|6400; delivered:bool
  street=Mill Lane|Quay Road; depot=North|South
bikes Bike bikes
  frame_number=F-220|F-221|F-398; station=Harbour|Old Town|Campus; kilometres:int=14|860|5210; locked:bool
  battery_percent:int=12|78; model=City|Cargo
rides Ride rides
  driver=Jonas Frey|Mai Sato|Samir Costa; town=Turku|Porto|Vienna; seats_free:int=0|2|4; shared:bool
  leaves_on=2026-03-29|2026-04-05; car=blue van|grey estate
nature Sighting sightings
  species=kestrel|otter|lynx; site=Reed Bay|North Ridge|Mill Pond; animals:int=1|4|26; verified:bool
  observer=Ruth Klein|Tom Okoro; seen_on=2026-04-12|2026-05-30
weather WeatherReading weather readings
  station=Harbour mast|North Ridge|Airfield; region=Coast|Uplands|Valley; celsius:int=-7|11|29; checked:bool
  taken_on=2026-01-02|2026-07-14; wind_speed:float=3.5|11.2
nature Trail trails
  name=Heron loop|Ridge walk|Bog path; park=Reed Bay|Larch Forest|Mill Pond; metres:int=1800|5400|12600; closed:bool
  marker=blue|yellow|red; climb_metres:int=20|340
"""


def _literals(kind: str, examples: str) -> tuple[str, ...]:
    if kind == "bool":
        return "true", "false"
    return tuple(f'"{example}"' if kind == "str" else example for example in examples.split("|"))


def _field(text: str) -> Field:
    head, _, examples = text.partition("=")
    name, _, kind = head.partition(":")
    return Field(name, kind or "str", _literals(kind or "str", examples))


def _entity(paragraph: str) -> Entity:
    head, *lines = paragraph.splitlines()
    domain, name, plural = head.split(" ", maxsplit=2)
    fields = "; ".join(line.strip() for line in lines).split("; ")
    return Entity(domain, name, plural, tuple(_field(field) for field in fields))


ENTITIES: Final[tuple[Entity, ...]] = tuple(
    _entity(paragraph) for paragraph in re.split(r"\n(?=\S)", _ENTITIES.strip("\n"))
)
"""Every entity; names are unique."""

_LEVELS: Final = frozenset(
    ("days_out", "urgency", "months_left", "height_mm", "priority", "age_months", "kilometres", "celsius", "minimum")
)

ADDITIVE_ENTITIES: Final[tuple[Entity, ...]] = tuple(entity for entity in ENTITIES if entity.number.name not in _LEVELS)
"""Those whose number may be added up: a sum of pages means something, a sum of urgencies does not."""
