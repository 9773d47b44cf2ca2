// The stops of the tour through the page "Try it", as data: tour.js shows them. `address` is what the page shows at a stop,
// and `sight`, where there is one, finds the part to look at.
// In texts, *…* stands on the page at that stop, or where a link of the stop leads: [text](#address).
window.TOUR = [
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&box=german-sentence",
    "question": "What does the model get to see of your sentence?",
    "claim": "German cuts some verbs in two. Here, *hebt* stands third and *auf* waits at the very end; together they mean “picks up”. We’ll follow these two halves through the whole machine. First, the sentence becomes tokens, and each token becomes a number, its row in the vocabulary.",
    "answer": "Nine numbers. For *hebt* it’s 2213, for *auf* it’s 58, and nothing about these two says that they belong together. The two at the ends, *<sos>* and *<eos>*, come along by themselves: they say where a sentence begins and where it stops."
  },
  {
    "address": "#de=Der+Hund+beißt+den+Mann.&without=positions&box=positions-of-the-encoder",
    "question": "Would it notice if somebody shuffled your words?",
    "claim": "A number says which word it is, but not where it stood. So each word’s vector gets a second one added to it, made of sines and cosines, that stands for its place. We’ve switched these off. The German still says that the dog bites the man.",
    "answer": "It wouldn’t notice. Without positions, a sentence is a bag of words, and out of this bag comes *the man is biting the dog.* With them, it’s *the dog is biting the man.* Not one word has changed, and somebody else gets bitten."
  },
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&view=attention&kind=encoder&layer=2&head=2&word=7",
    "sight": ".keys",
    "question": "You are “auf”. Which word would you ask for help?",
    "claim": "In the encoder, every German word may look at every other, and takes from each as much as a weight says. That’s attention. It happens in twelve heads, four in each layer. This is head 2 of layer 2, at the row of *auf*. Choose a word yourself before you read the weights.",
    "answer": "*hebt*, with 0.447; the next gets no more than 0.135. So this is where the verb’s two halves find each other. It’s a lovely picture. Keep a little doubt, though: we’ll put it to the test near the end."
  },
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&box=self-attention-of-the-encoder&layer=1&head=1&word=6",
    "sight": "[data-step=scores] .numbers",
    "question": "Why is each score divided by √64?",
    "claim": "Here’s another head, opened up, at the word *ball*. Each row of the table is a word that it may look at. There’s a dot product, *q · k*, which is divided by √64, and softmax makes weights of the whole column. They’re shared out, and the largest is 0.322. Now [leave the division out](#de=Der+Mann+hebt+den+Ball+auf.&without=scale&box=self-attention-of-the-encoder&layer=1&head=1&word=6).",
    "answer": "It keeps the choice soft. √64 is 8, so without it every score is eight times as large, and *den* takes 0.993. Nobody else gets anything. The translation is the same, since this model has learned already. Training is where it hurts: a weight so close to 1 lets next to no gradient through, and without a gradient nothing is learned."
  },
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&step=6&box=self-attention-of-the-decoder&layer=1&head=1&word=3",
    "sight": "[data-step=scores] .numbers",
    "question": "May a word look at what comes after it?",
    "claim": "This is the other side, the decoder, which writes. It has come as far as *the man is raising*, and we’re at the row of *man*. Look down the column *÷ √64*: the highest score, 0.78, belongs to *ing*, which comes later.",
    "answer": "It may not. Whatever lies ahead gets −∞ in place of its score, and softmax turns that into a weight of 0.000. In training there’s no other way. The whole English sentence lies on the table then, and a word that could see the next one would learn to copy it, and nothing else."
  },
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&step=4&box=cross-attention&layer=1&head=1",
    "sight": "[data-step=scores] .numbers",
    "question": "It’s about to write “raising”. Which German word does it look at?",
    "claim": "Cross-attention is where the two sides meet: the decoder asks, and the German words answer. You see head 1 of layer 1 at the moment before *rais* is written. The question comes from *is*, the newest word, and the weights are in the table.",
    "answer": "At *hebt*, with 0.985. And *auf*, the verb’s other half? It gets 0.001. As far as this head goes, whatever *auf* had to say must have reached *hebt* before, in the encoder."
  },
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&step=4&box=decoder-layer-by-layer",
    "sight": "[data-step=lens] .numbers",
    "question": "When does it know what it will write?",
    "claim": "There are three such layers, one above the other, and between them we can peek. Take the vector as it is so far, pretend that it’s finished, and ask for the next word. The first table under *What it would write already* does this, from what enters down to the last layer.",
    "answer": "Late. What enters is still the word it has just read: *is*, with 99.9 %. After *layer 2* it would write *picking*, 19.6 %. Only *layer 3* turns to *rais*, 38.0 %. It’s a peek and no more, since nobody trained the vectors in between to be read like this."
  },
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&step=4&box=softmax",
    "question": "How sure is it of that word?",
    "claim": "On top, each subword of the vocabulary has a score by now, and softmax makes probabilities of them. The table shows the six largest. What would you expect for a word that fits?",
    "answer": "*rais* gets 38.0 %, and *picking* comes second with 16.9 %. That sounds like doubt, and it’s mostly choice: there are several good ways to say this in English, and all of them have to share one hundred percent."
  },
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&begin=the+man+is+picking&step=5&view=alternatives",
    "question": "Make it write “picking”. Where does its “up” come from?",
    "claim": "We’ve put *picking* into its mouth, and it goes on with *up*, which it gives 31.2 %. German has *auf*, English has *up*: it looks as if one were the other’s translation. You can find out. Take a word away, and see what’s left of the 31.2 %.",
    "answer": "[Without “auf”](#de=Der+Mann+hebt+den+Ball.&begin=the+man+is+picking&step=5&view=alternatives), *up* still has 26.8 %. [Without “hebt”](#de=Der+Mann+den+Ball+auf.&begin=the+man+is+picking&step=5&view=alternatives), it has 11.4 %. So most of it hangs on the verb, and some on English itself, in which people pick things up. What looked so clear was wrong."
  },
  {
    "address": "#de=Im+Park+spielen+zwei+Kinder+Fußball.&view=beam",
    "sight": ".finished",
    "question": "Does it write the most probable sentence?",
    "claim": "So far we’ve looked at one step at a time. A translation is a path of many steps, and a beam follows four paths at once. Below the tree are the sentences that it finished. A log-probability is negative, and the nearer to 0, the more probable the sentence.",
    "answer": "Not here. *two children playing soccer in the park.* has −2.60; the one that’s written has −2.93. Each further word costs something, so what’s most probable is often too short. The length penalty makes up for that: as scores, −0.187 beats −0.204, and the longer one wins."
  },
  {
    "address": "#de=Der+Mann+hebt+den+Ball+auf.&silenced=encoder+2.2&step=4&view=heads",
    "sight": ".atlas",
    "question": "What if we silence the head that tied “auf” to “hebt”?",
    "claim": "Here are all 36 heads, each with a small map of this sentence. *encoder 2.2* is the one from our third stop, and it’s switched off: it finds nothing any more. What is written now stands above the maps, with what was written before.",
    "answer": "Nothing happens: *(the same)*. For *rais* it’s 37.3 %, and with all heads it was [38.0 %](#de=Der+Mann+hebt+den+Ball+auf.&step=4&view=heads). So our lovely picture was no explanation. Others do this work too, or it never mattered. Now [silence all of cross-attention](#de=Der+Mann+hebt+den+Ball+auf.&silenced=cross&step=1&view=heads), and German can’t come through: *a fisherman is in the middle of a carnival attached to himself.*"
  },
  {
    "address": "#de=Ich+liebe+dich.",
    "question": "What does it say when it doesn’t know?",
    "claim": "All it has ever read are captions of photos. This sentence isn’t one: it says “I love you.” Look at what stands there now, and at the percentages below it.",
    "answer": "*i i i see thought.* It has no way to say that it doesn’t know, so it writes something. Its probabilities give it away: a word got 23 % on average. That’s the last stop, and the page is yours. Write a sentence of your own, and open whatever makes you curious."
  }
];
