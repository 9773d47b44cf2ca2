"""Verbs of the sample grammar: German forms and the English verb, one a line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """A verb in both languages.

    `infinitive` (also the plural present) and `third` (singular present) leave out a separable `prefix`. `auxiliary`
    is "haben" or "sein". The English verb may have a particle ("pick up") or govern its object with a preposition
    ("look for").
    """

    name: str
    prefix: str
    infinitive: str
    third: str
    participle: str
    auxiliary: str
    base: str
    present: str
    gerund: str
    past_participle: str
    particle: str
    preposition: str


# prefix+infinitive, third person, participle, h(aben) or s(ein) | base, third person, -ing, past participle,
# then "+particle" or "@preposition".
VERB_TABLE = """
schlafen schläft geschlafen h | sleep sleeps sleeping slept
sitzen sitzt gesessen h | sit sits sitting sat
stehen steht gestanden h | stand stands standing stood
liegen liegt gelegen h | lie lies lying lain
spielen spielt gespielt h | play plays playing played
tanzen tanzt getanzt h | dance dances dancing danced
singen singt gesungen h | sing sings singing sung
lachen lacht gelacht h | laugh laughs laughing laughed
lächeln lächelt gelächelt h | smile smiles smiling smiled
weinen weint geweint h | cry cries crying cried
warten wartet gewartet h | wait waits waiting waited
arbeiten arbeitet gearbeitet h | work works working worked
angeln angelt geangelt h | fish fishes fishing fished
baden badet gebadet h | bathe bathes bathing bathed
bellen bellt gebellt h | bark barks barking barked
grasen grast gegrast h | graze grazes grazing grazed
wohnen wohnt gewohnt h | live lives living lived
bleiben bleibt geblieben s | stay stays staying stayed
laufen läuft gelaufen s | run runs running run
gehen geht gegangen s | walk walks walking walked
wandern wandert gewandert s | hike hikes hiking hiked
springen springt gesprungen s | jump jumps jumping jumped
klettern klettert geklettert s | climb climbs climbing climbed
schwimmen schwimmt geschwommen s | swim swims swimming swum
fliegen fliegt geflogen s | fly flies flying flown
fahren fährt gefahren s | go goes going gone
reiten reitet geritten s | ride rides riding ridden
kriechen kriecht gekrochen s | crawl crawls crawling crawled
lesen liest gelesen h | read reads reading read
schreiben schreibt geschrieben h | write writes writing written
essen isst gegessen h | eat eats eating eaten
trinken trinkt getrunken h | drink drinks drinking drunk
werfen wirft geworfen h | throw throws throwing thrown
fangen fängt gefangen h | catch catches catching caught
malen malt gemalt h | paint paints painting painted
kaufen kauft gekauft h | buy buys buying bought
verkaufen verkauft verkauft h | sell sells selling sold
halten hält gehalten h | hold holds holding held
tragen trägt getragen h | wear wears wearing worn
schleppen schleppt geschleppt h | carry carries carrying carried
putzen putzt geputzt h | clean cleans cleaning cleaned
waschen wäscht gewaschen h | wash washes washing washed
füttern füttert gefüttert h | feed feeds feeding fed
streicheln streichelt gestreichelt h | stroke strokes stroking stroked
reparieren repariert repariert h | repair repairs repairing repaired
bauen baut gebaut h | build builds building built
schneiden schneidet geschnitten h | cut cuts cutting cut
kochen kocht gekocht h | cook cooks cooking cooked
backen backt gebacken h | bake bakes baking baked
suchen sucht gesucht h | look looks looking looked @for
ziehen zieht gezogen h | pull pulls pulling pulled
schieben schiebt geschoben h | push pushes pushing pushed
fotografieren fotografiert fotografiert h | photograph photographs photographing photographed
beobachten beobachtet beobachtet h | watch watches watching watched
besuchen besucht besucht h | visit visits visiting visited
umarmen umarmt umarmt h | hug hugs hugging hugged
jagen jagt gejagt h | chase chases chasing chased
öffnen öffnet geöffnet h | open opens opening opened
schließen schließt geschlossen h | close closes closing closed
pflücken pflückt gepflückt h | pick picks picking picked
gießen gießt gegossen h | water waters watering watered
stellen stellt gestellt h | place places placing placed
legen legt gelegt h | lay lays laying laid
hängen hängt gehängt h | hang hangs hanging hung
geben gibt gegeben h | give gives giving given
zeigen zeigt gezeigt h | show shows showing shown
bringen bringt gebracht h | bring brings bringing brought
helfen hilft geholfen h | help helps helping helped
folgen folgt gefolgt s | follow follows following followed
danken dankt gedankt h | thank thanks thanking thanked
antworten antwortet geantwortet h | answer answers answering answered
brauchen braucht gebraucht h | need needs needing needed
sehen sieht gesehen h | see sees seeing seen
merken merkt gemerkt h | notice notices noticing noticed
glauben glaubt geglaubt h | believe believes believing believed
auf+heben hebt aufgehoben h | pick picks picking picked +up
an+ziehen zieht angezogen h | put puts putting put +on
aus+ziehen zieht ausgezogen h | take takes taking taken +off
auf+räumen räumt aufgeräumt h | tidy tidies tidying tidied +up
mit+nehmen nimmt mitgenommen h | take takes taking taken +along
an+schalten schaltet angeschaltet h | turn turns turning turned +on
aus+schalten schaltet ausgeschaltet h | turn turns turning turned +off
an+schauen schaut angeschaut h | look looks looking looked @at
weg+werfen wirft weggeworfen h | throw throws throwing thrown +away
auf+hängen hängt aufgehängt h | hang hangs hanging hung +up
aus+packen packt ausgepackt h | unpack unpacks unpacking unpacked
an+zünden zündet angezündet h | light lights lighting lit
ab+holen holt abgeholt h | fetch fetches fetching fetched
ab+stellen stellt abgestellt h | put puts putting put +down
ein+schlafen schläft eingeschlafen s | fall falls falling fallen +asleep
ein+kaufen kauft eingekauft h | shop shops shopping shopped
vor+lesen liest vorgelesen h | read reads reading read
zu+werfen wirft zugeworfen h | throw throws throwing thrown
zu+hören hört zugehört h | listen listens listening listened @to
zu+schauen schaut zugeschaut h | watch watches watching watched
zu+winken winkt zugewinkt h | wave waves waving waved @at
"""


def _read_verbs(table: str) -> dict[str, Verb]:
    verbs = {}
    for line in table.strip().splitlines():
        german, _, english = line.partition(" | ")
        word, third, participle, auxiliary = german.split()
        prefix, _, infinitive = word.rpartition("+")
        base, present, gerund, past_participle, *rest = english.split()
        extra = rest[0] if rest else ""
        name = prefix + infinitive
        verbs[name] = Verb(
            name=name,
            prefix=prefix,
            infinitive=infinitive,
            third=third,
            participle=participle,
            auxiliary={"h": "haben", "s": "sein"}[auxiliary],
            base=base,
            present=present,
            gerund=gerund,
            past_participle=past_participle,
            particle=extra[1:] if extra.startswith("+") else "",
            preposition=extra[1:] if extra.startswith("@") else "",
        )
    return verbs


VERBS = _read_verbs(VERB_TABLE)
