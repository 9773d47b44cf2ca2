"""Sentences in three other scripts and their English translations, made by a small grammar: our own, and correct."""

import itertools
import random

PLACES = ["at home", "in the park", "at school", "in the garden", "in the library", "at the market"]
ACTIONS = [
    *("is sleeping", "is waiting", "is resting", "is drinking water"),
    *("is singing", "is reading a book", "is eating an apple", "is drawing a picture", "is writing a letter"),
]
TIMES = ["", " now", " today"]
FOR_ANIMALS = 4  # of the actions

KOREAN = {
    "who": {
        **{"the dog": "개", "the cat": "고양이", "the child": "아이", "the woman": "여자", "the man": "남자"},
        **{"the teacher": "선생님", "the student": "학생", "the doctor": "의사"},
    },
    "places": ["집에서", "공원에서", "학교에서", "정원에서", "도서관에서", "시장에서"],
    "actions": [
        "자고",
        "기다리고",
        "쉬고",
        "물을 마시고",
        "노래하고",
        "책을 읽고",
        "사과를 먹고",
        "그림을 그리고",
        "편지를 쓰고",
    ],
    "times": ["", "지금 ", "오늘 "],
}
CHINESE = {
    "who": {
        **{"the dog": "狗", "the cat": "猫", "the child": "孩子", "the woman": "女人", "the man": "男人"},
        **{"the teacher": "老师", "the student": "学生", "the doctor": "医生"},
    },
    "places": ["家里", "公园里", "学校里", "花园里", "图书馆里", "市场上"],
    "actions": ["睡觉", "等着", "休息", "喝水", "唱歌", "看书", "吃苹果", "画画", "写信"],
    "times": ["", "现在", "今天"],
}
ARABIC = {
    "who": {  # and whether it is feminine, as the verb must be
        **{"the dog": ("الكلب", False), "the cat": ("القطة", True), "the boy": ("الولد", False)},
        **{"the girl": ("البنت", True), "the woman": ("المرأة", True), "the man": ("الرجل", False)},
        **{"the teacher": ("المعلم", False), "the doctor": ("الطبيب", False)},
    },
    "places": ["في البيت", "في المنتزه", "في المدرسة", "في الحديقة", "في المكتبة", "في السوق"],
    "actions": ["نام", "نتظر", "ستريح", "شرب الماء", "غني", "قرأ كتابا", "أكل تفاحة", "رسم صورة", "كتب رسالة"],
    "times": ["", " الآن", " اليوم"],
}


def korean(who: str, place: str, action: str, time: str) -> str:
    particle = "이" if (ord(who[-1]) - ord("가")) % 28 else "가"  # by whether the last syllable ends in a consonant
    return f"{time}{who}{particle} {place} {action} 있습니다."


def chinese(who: str, place: str, action: str, time: str) -> str:
    return f"{time}{who}在{place}{action}。"


def arabic(who: tuple[str, bool], place: str, action: str, time: str) -> str:
    noun, feminine = who
    return f"{noun} {'ت' if feminine else 'ي'}{action} {place}{time}."


LANGUAGES = {"ko": (KOREAN, korean), "zh": (CHINESE, chinese), "ar": (ARABIC, arabic)}


def sentence_pairs(language: str, number: int = 300) -> list[tuple[str, str]]:
    """Return pairs of an English sentence and its translation, in an order that is always the same."""
    words, write = LANGUAGES[language]
    sentences = []
    kinds = [range(len(words["who"])), range(len(PLACES)), range(len(ACTIONS)), range(len(TIMES))]
    for who, place, action, time in itertools.product(*kinds):
        if who < 2 and action >= FOR_ANIMALS:
            continue
        english, translated = list(words["who"].items())[who]
        foreign = write(translated, words["places"][place], words["actions"][action], words["times"][time])
        sentences.append((f"{english.capitalize()} {ACTIONS[action]} {PLACES[place]}{TIMES[time]}.", foreign))
    return random.Random(0).sample(sentences, number)
