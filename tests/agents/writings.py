"""Texts in many scripts and shapes, for what counts and shortens them. Each was written for this."""

from __future__ import annotations

from hypothesis import strategies as st

LANGUAGES = {
    "English": "The council decides early, if it can. Otherwise it waits for the last ballot, or for the deadline.",
    "German": "Der Rat entscheidet früh, wenn er kann. Größere Änderungen prüft zusätzlich ein Mensch.",
    "French": "Le conseil décide tôt, s'il le peut. À défaut, il attend l'échéance fixée par la règle.",
    "Spanish": "¿Quién decide? El consejo vota, y la mayoría manda. ¡Mañana habrá otra sesión!",
    "Polish": "Rada głosuje szybko. Jeżeli głosy są równe, rozstrzyga człowiek, który żąda wyjaśnień.",
    "Czech": "Příliš žluťoučký kůň úpěl ďábelské ódy. Rada čeká na poslední hlas.",
    "Turkish": "Kurul erken karar verir. İtiraz eden üye gerekçesini yazar, sonra oylama biter.",
    "Vietnamese": "Hội đồng quyết định sớm nếu có thể. Mỗi ghế chỉ được bỏ một phiếu.",
    "Russian": "Совет решает рано, если может. Иначе он ждёт последнего голоса или срока.",
    "Ukrainian": "Рада вирішує швидко, якщо є кворум. Ніхто не голосує двічі.",
    "Greek": "Το συμβούλιο αποφασίζει νωρίς, αν μπορεί. Διαφορετικά περιμένει την προθεσμία.",
    "Armenian": "Խորհուրդը որոշում է շուտ, եթե կարող է։ Հակառակ դեպքում սպասում է։",
    "Georgian": "საბჭო ადრე წყვეტს, თუ შეუძლია. სხვაგვარად ელოდება ვადას.",
    "Hebrew": "המועצה מחליטה מוקדם, אם היא יכולה. אחרת היא ממתינה למועד.",
    "Arabic": "يقرر المجلس مبكرا إن استطاع. وإلا فإنه ينتظر آخر صوت؟ نعم.",
    "Persian": "شورا اگر بتواند زود تصمیم می‌گیرد. وگرنه منتظر می‌ماند.",
    "Hindi": "परिषद जल्दी निर्णय लेती है, यदि वह ले सके। अन्यथा वह प्रतीक्षा करती है।",
    "Bengali": "পরিষদ পারলে আগেই সিদ্ধান্ত নেয়। না হলে শেষ ভোটের জন্য অপেক্ষা করে।",
    "Tamil": "சபை முடிந்தால் விரைவில் முடிவு செய்கிறது. இல்லையெனில் காத்திருக்கிறது.",
    "Thai": "สภาตัดสินใจแต่เนิ่นๆ ถ้าทำได้ มิฉะนั้นจะรอเสียงสุดท้าย",
    "Burmese": "ကောင်စီသည် တတ်နိုင်လျှင် စောစောဆုံးဖြတ်သည်။",
    "Tibetan": "ཚོགས་འདུས་སྔ་མོ་ནས་ཐག་གཅོད།",
    "Amharic": "ምክር ቤቱ ከቻለ ቀድሞ ይወስናል። አለበለዚያ ይጠብቃል።",
    "Chinese": "委员会如果可以就提前决定。否则等待最后一票，或者等到期限！谁来负责？",
    "Japanese": "評議会は可能なら早く決定します。そうでなければ最後の票を待ちます！",
    "Korean": "위원회는 가능하면 일찍 결정합니다. 그렇지 않으면 마지막 표를 기다립니다.",
    "Cherokee": "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᎠᏂᎳᏫᎩ.",
    "Gothic": "𐌰𐌽𐌰 𐍃𐍄𐌰𐌸𐌰 𐌲𐌰𐌵𐌿𐌼𐌸𐍃.",
}
SHAPES = {
    "code": 'def tally(ballots: list[Ballot]) -> int:\n    """Counts."""\n    return sum(b.yes for b in ballots)\n',
    "json": '{"proposal_id":"3f9a0c1d","vote":"yes","confidence":0.85,"tags":["a","b"],"x":null}',
    "diff": "--- a/app.py\n+++ b/app.py\n@@ -1,3 +1,3 @@\n-import os\n+import sys\n \n x = 1\n",
    "base64": "aGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXN0IQ==QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
    "hex": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "log": "2026-11-21T11:32:10Z WARN seat=codemind run=3 heartbeat late by 91.2s\n",
    "table": "| seat | vote |\n|------|------|\n| prime | yes |\n",
    "spaces": "   \t\t\n\n\n        x        \r\n",
    "marks": "~~~~~~~~!!!!####^^^^(((({{{{;;;;\\\\\\\\",
    "emoji": "👩‍👩‍👧‍👦🇩🇪🏳️‍🌈👍🏽 ok ✅⚠️",
    "composed and not": "é e\u0301 ñ n\u0303 Å A\u030a ｆｕｌｌ ﬁ क़ क\u093c",
    "unseen": "a\u200bb\u00adc\ufeffd\u2028e\u0085f\u202eg",
    "special": "<|im_start|>system<|im_end|><|endoftext|><s></s>[INST]<bos><start_of_turn><|eot_id|>",
}
WRITINGS = LANGUAGES | SHAPES

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ASCII_TEXT = st.text(st.characters(max_codepoint=0x7F), max_size=120)
_SLICES = st.builds(
    lambda text, start, length: text[start : start + length],
    st.sampled_from(sorted(WRITINGS.values())),
    st.integers(0, 60),
    st.integers(1, 120),
)
_REPEATED = st.builds(
    lambda text, times: text * times, ANY_TEXT.map(lambda text: text[:3]), st.integers(1, 40)
)
# Of everything: slices of the writings, characters from anywhere, and runs of the same.
TEXTS = st.lists(_SLICES | _SLICES | ANY_TEXT | ASCII_TEXT | _REPEATED, max_size=6).map("".join)
