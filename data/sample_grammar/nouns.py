"""Nouns and adjectives of the sample grammar, with the English word for each.

The tables are plain text so that a reader can check them at a glance.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Adjective:
    """A German adjective: the predicate form ("dunkel"), the stem that takes endings ("dunkl") and the English word."""

    word: str
    stem: str
    english: str


@dataclass(frozen=True)
class Noun:
    """A noun with all that inflection needs.

    gender is "m", "f" or "n". `plural` is empty for nouns that the grammar only uses in the singular. `weak` marks the
    n-declension (der Junge, den Jungen). `group` says what kind of thing the noun names; `adjectives` what can be said
    of it; `sex` ("m", "f" or "") picks he or she for people.
    """

    lemma: str
    gender: str
    plural: str
    english: str
    english_plural: str
    weak: bool
    group: str
    adjectives: tuple[str, ...]
    sex: str


# German / English. A stem that differs from the predicate form follows in brackets.
ADJECTIVE_TABLE = """
jung young; alt old; klein small; groß big; müde(müd) tired; glücklich happy; freundlich friendly; blond blond
fröhlich cheerful; traurig sad; neugierig curious; hungrig hungry; durstig thirsty; stark strong; schnell fast
rot red; blau blue; grün green; gelb yellow; weiß white; schwarz black; braun brown; grau gray; bunt colorful
neu new; dick thick; lang long; kurz short; nass wet; trocken dry; warm warm; kalt cold; heiß hot; frisch fresh
süß sweet; schwer heavy; leer empty; sauber clean; schön beautiful; dunkel(dunkl) dark; tief deep; lecker tasty
rund round; weich soft; laut loud
"""

# group: the adjectives its nouns take. Then one noun a line:
# lemma gender plural english english-plural [adjectives of its own]. "m-n" is a masculine noun of the n-declension,
# "-" as a plural means singular only, "_" in an English word stands for a space.
NOUN_TABLE = """
man: jung alt freundlich müde glücklich fröhlich
  Mann m Männer man men
  Vater m Väter father fathers jung müde glücklich
  Großvater m Großväter grandfather grandfathers alt freundlich müde fröhlich
  Lehrer m Lehrer teacher teachers
  Bauer m-n Bauern farmer farmers
  Polizist m-n Polizisten policeman policemen jung freundlich müde
  Student m-n Studenten student students jung müde glücklich fröhlich
  Arzt m Ärzte doctor doctors jung alt freundlich müde
  Maler m Maler painter painters
  Gärtner m Gärtner gardener gardeners
  Nachbar m-n Nachbarn neighbor neighbors alt freundlich neugierig
  Arbeiter m Arbeiter worker workers jung stark müde
  Tourist m-n Touristen tourist tourists jung müde neugierig glücklich
  Koch m Köche cook cooks
woman: jung alt freundlich müde glücklich fröhlich blond
  Frau f Frauen woman women
  Mutter f Mütter mother mothers jung müde glücklich
  Großmutter f Großmütter grandmother grandmothers alt freundlich müde fröhlich
  Lehrerin f Lehrerinnen teacher teachers
  Ärztin f Ärztinnen doctor doctors jung alt freundlich müde
  Sängerin f Sängerinnen singer singers
  Tänzerin f Tänzerinnen dancer dancers jung müde glücklich
boy: klein müde fröhlich traurig neugierig blond
  Junge m-n Jungen boy boys
girl: klein müde fröhlich traurig neugierig blond
  Mädchen n Mädchen girl girls
child: klein müde fröhlich traurig neugierig blond
  Kind n Kinder child children
  Baby n Babys baby babies klein müde fröhlich
relative-m: klein
  Sohn m Söhne son sons
  Bruder m Brüder brother brothers
  Freund m Freunde friend friends alt neu
relative-f: klein
  Tochter f Töchter daughter daughters
  Schwester f Schwestern sister sisters
animal: klein groß jung alt hungrig
  Hund m Hunde dog dogs klein groß braun schwarz weiß nass
  Katze f Katzen cat cats klein schwarz weiß grau müde
  Pferd n Pferde horse horses braun schwarz weiß jung schnell
  Kuh f Kühe cow cows braun alt hungrig
  Schaf n Schafe sheep sheep weiß schwarz klein
  Ziege f Ziegen goat goats weiß grau klein
  Esel m Esel donkey donkeys grau alt klein
  Vogel m Vögel bird birds klein bunt gelb
  Ente f Enten duck ducks klein weiß hungrig
  Affe m-n Affen monkey monkeys klein neugierig
  Bär m-n Bären bear bears groß braun hungrig
  Elefant m-n Elefanten elephant elephants groß jung durstig
  Hase m-n Hasen rabbit rabbits klein grau weiß
  Fisch m Fische fish fish groß klein bunt
text: neu alt
  Buch n Bücher book books neu alt dick
  Zeitung f Zeitungen newspaper newspapers neu alt
  Brief m Briefe letter letters lang kurz
food: groß lecker
  Apfel m Äpfel apple apples rot grün
  Banane f Bananen banana bananas gelb
  Kirsche f Kirschen cherry cherries rot süß
  Kuchen m Kuchen cake cakes lecker süß warm
  Brötchen n Brötchen roll rolls frisch warm
  Brot n Brote loaf loaves frisch warm
  Suppe f Suppen soup soups heiß warm lecker
  Pizza f Pizzas pizza pizzas heiß groß lecker
  Eis n - ice_cream - groß kalt lecker
drink: kalt
  Kaffee m - coffee - heiß schwarz
  Tee m - tea - heiß warm grün
  Wasser n - water - kalt frisch
  Milch f - milk - warm kalt frisch
  Saft m - juice - kalt frisch süß
toy: klein groß rot bunt neu
  Ball m Bälle ball balls klein groß rot blau gelb bunt
  Puppe f Puppen doll dolls klein schön neu
  Stein m Steine stone stones klein schwer rund
  Stock m Stöcke stick sticks lang kurz dick
clothing: rot blau grün schwarz weiß neu
  Hut m Hüte hat hats rot schwarz alt groß braun
  Mütze f Mützen cap caps rot blau warm gelb
  Hemd n Hemden shirt shirts weiß blau sauber grün
  Kleid n Kleider dress dresses rot schön lang weiß gelb
  Jacke f Jacken jacket jackets grün schwarz warm blau
  Mantel m Mäntel coat coats lang grau schwarz warm
  Schal m Schals scarf scarves lang bunt weich
  Helm m Helme helmet helmets gelb rot neu
footwear: braun schwarz neu nass
  Schuh m Schuhe shoe shoes
  Stiefel m Stiefel boot boots
  Handschuh m Handschuhe glove gloves warm schwarz weiß
hair: lang kurz blond schwarz grau braun
  Haar n Haare hair hair
load: schwer leer groß
  Kiste f Kisten box boxes
  Korb m Körbe basket baskets groß leer
  Tasche f Taschen bag bags schwer braun neu
  Koffer m Koffer suitcase suitcases schwer alt schwarz
  Eimer m Eimer bucket buckets leer blau
  Rucksack m Rucksäcke backpack backpacks schwer grün neu
  Leiter f Leitern ladder ladders lang schwer
instrument: alt neu
  Gitarre f Gitarren guitar guitars
  Flöte f Flöten flute flutes
  Geige f Geigen violin violins
vehicle: rot blau alt neu schnell
  Auto n Autos car cars rot schwarz schnell neu
  Fahrrad n Fahrräder bicycle bicycles rot blau neu alt
  Bus m Busse bus buses gelb leer
  Zug m Züge train trains schnell lang
  Boot n Boote boat boats klein weiß blau
  Traktor m Traktoren tractor tractors grün alt schwer
  Wagen m Wagen cart carts schwer alt
  Schlitten m Schlitten sled sleds schnell rot klein
house: alt neu schön
  Tisch m Tische table tables groß rund alt
  Stuhl m Stühle chair chairs alt neu weiß
  Sofa n Sofas sofa sofas weich grau alt
  Bett n Betten bed beds groß weich neu
  Lampe f Lampen lamp lamps klein alt
  Schrank m Schränke closet closets groß leer alt
  Regal n Regale shelf shelves lang leer
  Vase f Vasen vase vases blau schön leer
  Teppich m Teppiche carpet carpets weich bunt alt
  Bild n Bilder picture pictures schön bunt alt
  Spiegel m Spiegel mirror mirrors groß rund alt
  Kerze f Kerzen candle candles rot weiß dick
  Teller m Teller plate plates leer sauber weiß
  Tasse f Tassen cup cups leer sauber weiß
  Blume f Blumen flower flowers rot gelb schön
  Schlüssel m Schlüssel key keys neu alt klein
  Geschenk n Geschenke present presents groß klein bunt
building: alt neu schön groß
  Haus n Häuser house houses alt neu weiß klein
  Kirche f Kirchen church churches alt schön weiß
  Schule f Schulen school schools neu alt groß
  Turm m Türme tower towers alt rund
  Dach n Dächer roof roofs rot nass neu
  Tür f Türen door doors alt grün neu
  Fenster n Fenster window windows klein sauber rund
  Mauer f Mauern wall walls alt lang dick
  Zaun m Zäune fence fences lang weiß neu
  Brücke f Brücken bridge bridges alt lang
  Hütte f Hütten cabin cabins klein alt
  Sandburg f Sandburgen sandcastle sandcastles groß klein schön
nature: klein groß schön
  Park m Parks park parks
  Garten m Gärten garden gardens klein schön groß
  Wiese f Wiesen meadow meadows nass grün trocken
  Wald m Wälder forest forests dunkel tief
  Feld n Felder field fields grün trocken
  See m Seen lake lakes tief kalt
  Fluss m Flüsse river rivers tief kalt
  Strand m Strände beach beaches schön weiß
  Baum m Bäume tree trees alt groß grün
  Felsen m Felsen rock rocks groß nass
  Insel f Inseln island islands klein grün schön
  Berg m Berge mountain mountains
  Schnee m - snow - tief frisch
  Sand m - sand - warm heiß
  Gras n - grass - nass grün weich
town: klein groß
  Straße f Straßen street streets nass lang
  Platz m Plätze square squares groß leer
  Markt m Märkte market markets klein
  Spielplatz m Spielplätze playground playgrounds neu klein
  Hof m Höfe courtyard courtyards klein leer
  Stadt f Städte city cities alt schön groß
  Dorf n Dörfer village villages klein
  Bahnhof m Bahnhöfe station stations alt neu
  Bank f Bänke bench benches alt nass grün leer
  Zelt n Zelte tent tents klein blau warm
room: klein groß
  Küche f Küchen kitchen kitchens klein sauber
  Zimmer n Zimmer room rooms klein dunkel
  Restaurant n Restaurants restaurant restaurants klein neu
  Laden m Läden store stores klein neu
  Büro n Büros office offices klein
  Stall m Ställe stable stables alt dunkel
  Museum n Museen museum museums alt groß
  Bibliothek f Bibliotheken library libraries alt
  Boden m Böden floor floors nass sauber kalt
  Wand f Wände wall walls weiß gelb
"""

SEX = {"man": "m", "boy": "m", "relative-m": "m", "woman": "f", "girl": "f", "relative-f": "f"}


def _read_adjectives(table: str) -> dict[str, Adjective]:
    adjectives = {}
    for entry in table.replace("\n", ";").split(";"):
        if entry.strip():
            german, english = entry.split()
            word, _, stem = german.rstrip(")").partition("(")
            adjectives[word] = Adjective(word, stem or word, english)
    return adjectives


def _read_nouns(table: str) -> dict[str, Noun]:
    nouns: dict[str, Noun] = {}
    group, shared = "", ()
    for line in table.strip().splitlines():
        if not line.startswith(" "):
            group, _, words = line.partition(":")
            shared = tuple(words.split())
            continue
        lemma, gender, plural, english, english_plural, *own = line.split()
        nouns[lemma] = Noun(
            lemma=lemma,
            gender=gender[0],
            plural="" if plural == "-" else plural,
            english=english.replace("_", " "),
            english_plural=english_plural,
            weak=gender == "m-n",
            group=group,
            adjectives=tuple(own) or shared,
            sex=SEX.get(group, ""),
        )
    return nouns


ADJECTIVES = _read_adjectives(ADJECTIVE_TABLE)
NOUNS = _read_nouns(NOUN_TABLE)
