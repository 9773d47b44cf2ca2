"""Who does what, to what, and where: the selectional knowledge that keeps the sentences plausible."""

from __future__ import annotations

from dataclasses import dataclass

from .nouns import NOUNS
from .verbs import VERBS, Verb


@dataclass(frozen=True)
class Frame:
    """A verb with the kinds of subject, object and place that go with it; "" for none."""

    verb: Verb
    subjects: str
    objects: str
    places: str


@dataclass(frozen=True)
class Place:
    """A prepositional phrase of place or direction: German preposition, case, noun, English preposition."""

    preposition: str
    case: str
    noun: str
    english: str


def _group(*names: str) -> list[str]:
    return [lemma for lemma, noun in NOUNS.items() if noun.group in names]


# Kinds of participant, by name. A kind in `NOUN_KINDS` is a list of nouns.
NOUN_KINDS: dict[str, list[str]] = {
    "person": [*_group("man", "woman", "boy", "girl"), "Kind"],
    "adult": _group("man", "woman"),
    "young": ["Junge", "Mädchen", "Kind"],
    "small": ["Junge", "Mädchen", "Kind", "Baby"],
    "baby": ["Baby"],
    "parent": ["Vater", "Mutter", "Großvater", "Großmutter"],
    "relative": _group("relative-m", "relative-f"),
    "pet": ["Hund", "Katze"],
    "dog": ["Hund"],
    "sleeper": [*_group("man", "woman", "boy", "girl"), "Kind", "Baby", "Hund", "Katze"],
    "runner": ["Hund", "Pferd", "Hase", "Katze", "Junge", "Mädchen", "Kind", "Mann", "Frau", "Polizist", "Student"],
    "walker": [*_group("man", "woman", "boy", "girl"), "Kind", "Elefant", "Bär", "Esel"],
    "jumper": ["Hund", "Junge", "Mädchen", "Kind", "Mann", "Frau", "Student"],
    "leaper": ["Hund", "Pferd", "Katze", "Hase", "Junge", "Mädchen", "Polizist"],
    "climber": ["Katze", "Affe", "Junge", "Mädchen", "Kind", "Student", "Arbeiter"],
    "swimmer": ["Ente", "Fisch", "Hund", "Frau", "Mann", "Junge", "Mädchen", "Tourist"],
    "flyer": ["Vogel", "Ente"],
    "grazer": ["Kuh", "Schaf", "Pferd", "Ziege", "Esel"],
    "farm": ["Kuh", "Schaf", "Pferd", "Ziege", "Esel", "Ente"],
    "zoo": ["Affe", "Bär", "Elefant", "Vogel", "Pferd", "Ente"],
    "petted": ["Hund", "Katze", "Pferd", "Hase", "Schaf", "Esel"],
    "chaser": ["Hund", "Katze"],
    "chased": ["Vogel", "Hase", "Ente"],
    "tractive": ["Pferd", "Esel", "Hund"],
    "singer": ["Sängerin", "Frau", "Mädchen", "Kind", "Student", "Mann"],
    "dancer": ["Tänzerin", "Frau", "Mädchen", "Kind", "Student", "Mann"],
    "worker": ["Arbeiter", "Gärtner", "Bauer", "Mann", "Frau"],
    "gardener": ["Gärtner", "Bauer", "Frau", "Mann", "Großmutter", "Großvater", "Nachbar"],
    "cook": ["Koch", "Mutter", "Vater", "Großmutter"],
    "painter": ["Maler", "Mädchen", "Junge", "Kind", "Student"],
    "seller": ["Bauer", "Mann", "Frau", "Gärtner"],
    "text": _group("text"),
    "letter": ["Brief"],
    "book": ["Buch", "Brief"],
    "food": ["Apfel", "Banane", "Kuchen", "Brötchen", "Suppe", "Pizza", "Eis"],
    "fruit": ["Apfel", "Kirsche"],
    "fruits": ["Apfel", "Kirsche", "Banane", "Blume"],
    "cuttable": ["Apfel", "Kuchen", "Brot", "Pizza"],
    "soup": ["Suppe"],
    "baked": ["Kuchen", "Brot", "Brötchen", "Pizza"],
    "drink": _group("drink"),
    "throwable": ["Ball", "Ball", "Stein", "Stock"],
    "ball": ["Ball"],
    "clothing": _group("clothing"),
    "footwear": _group("footwear"),
    "wearable": ["Jacke", "Mantel", "Hemd", "Kleid", "Schuh", "Stiefel", "Handschuh"],
    "outerwear": ["Jacke", "Mantel", "Schuh", "Stiefel", "Handschuh"],
    "rider": ["Mann", "Frau", "Junge", "Mädchen", "Kind", "Tourist", "Bauer", "Polizist", "Student"],
    "builder": ["Arbeiter", "Maler"],
    "grower": ["Gärtner", "Bauer", "Frau", "Mann"],
    "office": ["Büro"],
    "office worker": ["Mann", "Frau", "Lehrer", "Lehrerin", "Arzt", "Ärztin"],
    "load": _group("load"),
    "instrument": _group("instrument"),
    "repaired": ["Auto", "Fahrrad", "Traktor", "Dach", "Zaun", "Tür", "Boot", "Stuhl", "Bus"],
    "washed": ["Auto", "Hund", "Pferd", "Fahrrad", "Hemd", "Kleid"],
    "cleaned": ["Fenster", "Küche", "Tisch", "Boden", "Spiegel", "Zimmer"],
    "built": ["Haus", "Turm", "Mauer", "Zaun", "Hütte", "Brücke"],
    "castle": ["Sandburg", "Turm"],
    "pulled": ["Wagen", "Schlitten"],
    "pushed": ["Wagen", "Fahrrad", "Auto", "Schlitten", "Kiste", "Schrank"],
    "photographed": ["Kirche", "Turm", "Brücke", "Vogel", "Elefant", "Affe", "Hund", "Fluss", "See", "Berg"],
    "picture": ["Bild", "Haus", "Blume", "Baum"],
    "bought": [
        "Apfel",
        "Brot",
        "Blume",
        "Buch",
        "Zeitung",
        "Hut",
        "Kleid",
        "Lampe",
        "Stuhl",
        "Vase",
        "Jacke",
        "Kuchen",
    ],
    "sold": ["Apfel", "Blume", "Brot", "Brötchen", "Fisch", "Korb", "Teppich", "Hut"],
    "held": ["Blume", "Ball", "Korb", "Kerze", "Hut", "Tasse", "Geschenk", "Stock", "Gitarre"],
    "sought": ["Schlüssel", "Hut", "Ball", "Tasche", "Buch", "Hund", "Katze", "Schal", "Koffer", "Puppe", "Brief"],
    "opened": ["Tür", "Fenster", "Kiste", "Schrank", "Brief", "Koffer", "Geschenk"],
    "closed": ["Tür", "Fenster", "Kiste", "Schrank", "Koffer"],
    "watered": ["Blume", "Baum"],
    "picked up": ["Ball", "Stein", "Stock", "Schlüssel", "Tasche", "Brief", "Handschuh", "Hut", "Puppe"],
    "tidied": ["Zimmer", "Küche", "Schrank"],
    "taken": ["Tasche", "Hund", "Buch", "Koffer", "Gitarre", "Rucksack", "Korb", "Ball"],
    "switched": ["Lampe"],
    "looked at": ["Bild", "Auto", "Turm", "Kleid", "Kirche", "Buch", "Elefant", "Vogel", "Boot"],
    "thrown away": ["Zeitung", "Schuh", "Brief", "Stuhl", "Teppich", "Lampe"],
    "hung up": ["Bild", "Spiegel", "Lampe", "Mantel", "Jacke", "Kleid"],
    "unpacked": ["Geschenk", "Koffer", "Tasche", "Rucksack", "Kiste"],
    "candle": ["Kerze"],
    "put down": ["Koffer", "Kiste", "Eimer", "Korb", "Rucksack", "Tasche"],
    "given": ["Apfel", "Ball", "Buch", "Blume", "Geschenk", "Puppe", "Schlüssel", "Brief", "Tasche", "Korb", "Banane"],
    "shown": ["Bild", "Buch", "Brief", "Puppe", "Vogel", "Fahrrad", "Haus", "Zimmer", "Garten"],
    "brought": ["Suppe", "Kuchen", "Tasse", "Zeitung", "Blume", "Koffer", "Brief", "Teller", "Stuhl"],
    "stood": ["Vase", "Lampe", "Teller", "Tasse", "Kerze", "Korb"],
    "laid": ["Buch", "Brief", "Zeitung", "Schlüssel", "Hut", "Schal"],
    "hung": ["Bild", "Spiegel", "Lampe"],
    "parked": ["Auto", "Bus", "Fahrrad", "Traktor", "Wagen"],
    "needed": ["Lampe", "Leiter", "Stuhl", "Schlüssel", "Mantel", "Fahrrad", "Helm", "Koffer", "Tisch"],
    "seen": ["Hund", "Katze", "Vogel", "Turm", "Boot", "Zug", "Hase", "Elefant", "Kirche", "Affe"],
}

# kind of place: "preposition noun = English preposition", all in the dative.
PLACE_TABLE = """
outdoors: in Park = in; in Garten = in; auf Wiese = in; an Strand = on; auf Platz = in; an See = by; an Fluss = by;
  auf Straße = on; in Hof = in; vor Haus = in_front_of; unter Baum = under; neben Kirche = next_to; in Wald = in
play: in Park = in; in Garten = in; auf Wiese = in; an Strand = on; auf Spielplatz = on; in Hof = in; in Schnee = in;
  in Sand = in; vor Schule = in_front_of; hinter Haus = behind; unter Baum = under
seat: auf Bank = on; auf Stuhl = on; auf Sofa = on; auf Boden = on; an Tisch = at; in Gras = in; unter Baum = under;
  neben Fenster = next_to; vor Zelt = in_front_of
bed: in Bett = in; auf Sofa = on; auf Teppich = on; in Gras = in; unter Baum = under; in Zelt = in; auf Bank = on
stand: auf Brücke = on; an Fenster = at; vor Kirche = in_front_of; neben Auto = next_to; hinter Zaun = behind;
  vor Laden = in_front_of; neben Tür = next_to; unter Brücke = under; auf Platz = in; vor Museum = in_front_of
  auf Felsen = on; neben Boot = next_to
wait: an Bahnhof = at; vor Schule = in_front_of; vor Restaurant = in_front_of; in Auto = in; vor Museum = in_front_of;
  neben Bus = next_to; vor Tür = in_front_of
work: auf Dach = on; auf Straße = on; auf Brücke = on
farming: in Garten = in; auf Feld = in; in Stall = in
office: in Büro = in; in Bibliothek = in; in Schule = in
ladder: auf Leiter = on
read: in Park = in; in Garten = in; in Bibliothek = in; in Zug = on; auf Sofa = on; auf Bank = on; in Bett = in;
  unter Baum = under; an Strand = on; in Zimmer = in
eat: in Küche = in; in Restaurant = in; an Tisch = at; auf Bank = on; in Garten = in; in Park = in;
  vor Zelt = in_front_of
kitchen: in Küche = in
market: auf Markt = at; in Stadt = in; in Dorf = in
shop: in Laden = in; auf Markt = at; in Stadt = in
stage: auf Straße = on; auf Platz = in; in Park = in; in Restaurant = in; vor Kirche = in_front_of; an Strand = on
water: in See = in; in Fluss = in; in Wasser = in
shore: an See = by; an Fluss = by; auf Brücke = on; in Boot = in
pasture: auf Wiese = in; auf Feld = in; hinter Zaun = behind; neben Stall = next_to
home: in Dorf = in; in Stadt = in; an Fluss = by; auf Insel = on; in Hütte = in
table: auf Tisch = on; in Regal = on; auf Boden = on
wall: an Wand = on
bark: in Hof = in; vor Tür = in_front_of; hinter Zaun = behind; in Garten = in
parking: vor Haus = in_front_of; auf Straße = on; neben Schule = next_to; hinter Kirche = behind;
  vor Bahnhof = in_front_of
lie: in Bett = in; auf Sofa = on; in Gras = in; an Strand = on; auf Teppich = on; in Schnee = in
workshop: in Hof = in; vor Haus = in_front_of; auf Straße = on
garden: in Garten = in; auf Feld = in; hinter Haus = behind
"""

# kind of direction: "preposition noun = English preposition"; the case is the accusative, but dative after zu and aus.
DIRECTION_TABLE = """
run: über Wiese = across; durch Park = through; durch Wald = through; über Straße = across; über Brücke = across;
  in Garten = into; um See = around; durch Schnee = through; über Feld = across; an Strand = to; durch Gras = through;
  aus Haus = out_of; durch Garten = through
walk: durch Park = through; durch Stadt = through; über Brücke = across; über Straße = across; durch Wald = through;
  in Wald = into; um See = around; zu Fluss = to; durch Dorf = through; über Platz = across
hike: durch Wald = through; über Berg = over; auf Berg = up; um See = around; zu Hütte = to; zu Dorf = to
go: in Museum = into; in Küche = into; in Laden = into; in Kirche = into; zu Bahnhof = to; zu Markt = to;
  zu Schule = to;
  aus Haus = out_of; durch Tür = through; in Restaurant = into; aus Laden = out_of; in Bibliothek = into
jump: in See = into; in Wasser = into; in Fluss = into; in Schnee = into; auf Felsen = onto
bed: auf Bett = onto; auf Sofa = onto
leap: über Zaun = over; über Mauer = over; auf Mauer = onto; über Bank = over; über Stein = over
climb: auf Baum = up; auf Dach = onto; über Zaun = over; auf Felsen = onto; über Mauer = over; durch Fenster = through
swim: durch See = across; durch Fluss = across; um Insel = around; zu Insel = to; zu Boot = to
fly: über Haus = over; über See = over; über Wald = over; über Dach = over; um Turm = around; über Stadt = over;
  in Baum = into; aus Baum = out_of
ride: in Stadt = into; zu Bahnhof = to; durch Dorf = through; zu Strand = to; an See = to; zu Schule = to;
  zu Museum = to
gallop: durch Wald = through; über Feld = across; über Wiese = across; durch Dorf = through; durch Fluss = through
crawl: durch Zimmer = through; über Teppich = across; unter Tisch = under; unter Bett = under; in Zelt = into
stand: auf Tisch = onto; in Regal = onto; auf Boden = onto; neben Fenster = next_to
lay: auf Tisch = onto; auf Bett = onto; in Schrank = into; in Regal = onto; neben Teller = next_to; auf Stuhl = onto
hang: an Wand = on; neben Tür = next_to; über Tisch = over; über Sofa = over
"""

# verb | subjects | objects | places
LOCATED = """
schlafen|sleeper||bed; sitzen|person||seat; sitzen|pet||lie; stehen|person||stand; liegen|sleeper||lie
spielen|young||play; spielen|pet||play; tanzen|dancer||stage; singen|singer||stage; warten|person||wait
arbeiten|builder||work; arbeiten|grower||farming; arbeiten|office worker||office; stehen|builder||ladder
angeln|adult||shore; schwimmen|swimmer||water; baden|young||water; bellen|dog||bark
grasen|grazer||pasture; wohnen|adult||home; lachen|person||outdoors; einkaufen|adult||shop; einschlafen|sleeper||bed
weinen|small||play
"""
STATIC = """
stehen|stood||table; liegen|laid||table; hängen|hung||wall; stehen|parked||parking
"""
TRANSITIVE = """
lesen|person|text|read; essen|person|food|eat; trinken|person|drink|eat; werfen|young|throwable|play
fangen|young|ball|play; fangen|dog|ball|play; malen|painter|picture|play; kaufen|adult|bought|shop
verkaufen|seller|sold|market; halten|person|held|; tragen|person|clothing|; tragen|person|footwear|
schleppen|person|load|outdoors
putzen|adult|cleaned|; waschen|adult|washed|workshop; füttern|person|farm|pasture; streicheln|person|petted|outdoors
reparieren|adult|repaired|workshop; bauen|worker|built|; bauen|young|castle|play; schneiden|cook|cuttable|kitchen
kochen|cook|soup|kitchen; backen|cook|baked|kitchen; suchen|person|sought|; ziehen|tractive|pulled|
ziehen|person|pulled|; schieben|adult|pushed|; fotografieren|person|photographed|; beobachten|person|zoo|
besuchen|person|relative|; umarmen|parent|small|; jagen|chaser|chased|outdoors; öffnen|person|opened|
schließen|person|closed|; pflücken|gardener|fruits|garden; gießen|gardener|watered|garden; schreiben|person|letter|read
füttern|parent|baby|kitchen; brauchen|adult|needed|; sehen|person|seen|outdoors
"""
SEPARABLE = """
aufheben|person|picked up|; anziehen|person|wearable|; ausziehen|person|outerwear|; aufräumen|person|tidied|
aufräumen|office worker|office|
mitnehmen|person|taken|; anschalten|person|switched|; ausschalten|person|switched|; anschauen|person|looked at|
wegwerfen|adult|thrown away|; aufhängen|adult|hung up|; auspacken|person|unpacked|; anzünden|adult|candle|
abholen|parent|small|; abholen|adult|relative|; abstellen|person|put down|
"""
MOTION = """
laufen|runner||run; gehen|walker||walk; gehen|person||go; wandern|adult||hike; springen|jumper||jump
springen|leaper||leap; springen|young||bed; springen|pet||bed; klettern|climber||climb; schwimmen|swimmer||swim
fliegen|flyer||fly; kriechen|baby||crawl
"""
PLACING = """
stellen|adult|stood|stand; legen|adult|laid|lay; hängen|adult|hung|hang
"""
# verb | giver | receiver in the dative, in the place column | thing
GIVING = """
geben|person|given|person; zeigen|person|shown|person; bringen|adult|brought|person; vorlesen|parent|book|young
zuwerfen|young|ball|dog; zuwerfen|young|ball|young; geben|person|fruit|grazer; vorlesen|adult|book|young
"""
DATIVE = """
helfen|person|person|; folgen|person|person|; folgen|dog|person|; danken|person|person|; antworten|person|person|
zuhören|person|singer|; zuschauen|person|dancer|; zuwinken|person|person|; folgen|young|pet|
"""
ENGLISH_SIMPLE = ("wohnen", "brauchen", "sehen", "merken", "glauben")  # stative in English: no progressive


def _read_places(table: str, accusative: bool) -> dict[str, list[Place]]:
    places: dict[str, list[Place]] = {}
    kind = ""
    for line in table.strip().splitlines():
        name, colon, rest = line.partition(": ")
        if colon:
            kind = name
            places[kind] = []
        for entry in (rest if colon else line).split(";"):
            if entry.strip():
                german, english = entry.split(" = ")
                preposition, noun = german.split()
                case = "acc" if accusative and preposition not in ("zu", "aus") else "dat"
                places[kind].append(Place(preposition, case, noun, english.strip().replace("_", " ")))
    return places


def _read_frames(table: str) -> list[Frame]:
    rows = [row.strip().split("|") for row in table.replace("\n", ";").split(";") if row.strip()]
    return [Frame(VERBS[verb], subjects, objects, places) for verb, subjects, objects, places in rows]


PLACES = _read_places(PLACE_TABLE, accusative=False)
DIRECTIONS = _read_places(DIRECTION_TABLE, accusative=True)
FRAMES = {
    "located": _read_frames(LOCATED),
    "static": _read_frames(STATIC),
    "transitive": _read_frames(TRANSITIVE),
    "separable": _read_frames(SEPARABLE),
    "motion": _read_frames(MOTION),
    "placing": _read_frames(PLACING),
    "giving": _read_frames(GIVING),
    "dative": _read_frames(DATIVE),
}
