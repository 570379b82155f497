"""General English for made-up values: common nouns, names, units. Nothing of any benchmark."""
# ruff: noqa: SIM905, E501 - word lists read better as text

from __future__ import annotations

NOUNS = (
    "account analysis archive article audit backup balance battery blueprint briefing brochure budget bulletin "
    "calendar campaign catalog chapter checklist client code comparison component conference contract "
    "correction course customer dashboard data deadline delivery design device diagram draft email engine "
    "estimate event expense experiment feature feedback festival finance forecast form garden guide handbook "
    "harbor image income index insight inventory invoice journal kitchen laptop launch layout lecture ledger "
    "lesson letter library license log manual map market meeting memo menu message method milestone minutes "
    "model module museum network newsletter note notebook offer order outline package page paper partner "
    "patch payment photo plan poem policy portfolio poster prediction presentation printer product profile "
    "project proposal prototype purchase quarter query quota quote radar rating receipt recipe record refund "
    "release reminder report request research result review river roadmap route salary sample schedule schema "
    "script season security sensor server session shipment signal sketch slide software solution source "
    "speech spreadsheet statement station storage story strategy studio summary supply survey sync system "
    "table target task team template test ticket timeline training transcript transfer travel trend tutorial "
    "update upgrade vendor version video vision visit volume warehouse website weekend workshop"
).split()
ADJECTIVES = (
    "annual big brief clean clear daily detailed early final fresh global hidden initial internal joint late local "
    "main major minor monthly new old open original private public quick quiet rapid recent remote revised second "
    "secure shared short silent simple smart special stable third urgent weekly yearly"
).split()
EXTENSIONS = "txt pdf md csv docx json log py xlsx png jpg html".split()
FIRST_NAMES = (
    "Adam Alice Amir Anna Ben Bianca Carla Carlos Chloe Dana David Elena Emma Erik Fatima Felix Grace Hana Hugo "
    "Ian Ines Ivan Jack Jana Julia Karl Kate Laura Leo Lena Lucas Maria Mark Maya Mei Michael Nina Noah Olga "
    "Oscar Paul Petra Priya Quinn Rosa Ryan Sara Simon Sofia Tariq Tom Uma Vera Victor Wendy Yuki Zoe"
).split()
LAST_NAMES = (
    "Adams Baker Bauer Brown Carter Chen Costa Davis Diaz Evans Fischer Garcia Green Hall Hansen Hill Ito Jones "
    "Kim King Kumar Lee Lopez Martin Meyer Miller Moore Nguyen Novak Parker Patel Perez Quinn Reed Rivera Rossi "
    "Santos Scott Silva Smith Stone Tanaka Taylor Turner Walker Weber White Wilson Wong Young"
).split()
COMPANIES = "Apple Google Microsoft Tesla Nvidia Amazon Netflix Intel Meta Oracle".split()
SECTORS = ("Technology", "Automobile", "Healthcare", "Energy", "Finance")
CURRENCIES = "USD EUR GBP JPY CAD AUD".split()
STREETS = (
    "Oak Street",
    "Main Street",
    "Park Avenue",
    "Lake Road",
    "Hill Road",
    "Station Street",
    "Elm Avenue",
)
WAYS = ("Street", "St", "Avenue", "Ave", "Road", "Rd", "Lane", "Boulevard")
REGIONS = ("CA", "NY", "TX", "WA", "FL", "IL")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November December").split()
# Groups of units that measure the same thing: a conversion stays within one group.
UNIT_GROUPS = (
    ("km", "m", "cm", "mm", "um", "nm"),
    ("kg", "g", "mg"),
    ("l", "ml"),
)
# The same across two systems: (one, other).
UNIT_PAIRS = (
    ("km", "miles"),
    ("m", "ft"),
    ("m", "yd"),
    ("cm", "in"),
    ("kg", "lb"),
    ("g", "oz"),
    ("celsius", "fahrenheit"),
    ("l", "gal"),
)
QUALITIES = ("basic", "standard", "premium", "comprehensive", "travel")
STATUSES = ("open", "closed", "pending", "resolved", "in progress")

SENTENCES = (
    "Please review the {noun} {noun2} before {day}",
    "The {adjective} {noun} is ready for the {noun2}",
    "We need the {noun} {noun2} by {day}",
    "Can you check the {adjective} {noun}",
    "{name} will bring the {noun} on {day}",
    "The {noun} for {name} was delayed until {day}",
    "Thanks for the {adjective} {noun} about the {noun2}",
    "Our {noun} starts at {hour} on {day}",
    "I finished the {noun} {noun2} today",
    "The {noun} has {number} open points",
    "Excited to share our {adjective} {noun}",
    "Meet me at the {noun} at {hour}",
    "There is a problem with the {noun} {noun2}",
    "The {noun} was updated to version {number}",
    "Looking forward to the {adjective} {noun} in {month}",
    "Remember to send the {noun} to {name}",
    "The {adjective} {noun} failed {number} times",
    "Our {month} {noun} is better than the {noun2}",
    "{name} asked for a copy of the {noun}",
    "No {noun} without a {adjective} {noun2}",
)
TITLES = (
    "{adjective} {noun} issue",
    "{noun} {noun2}",
    "{noun} request",
    "problem with {noun}",
    "{noun} {noun2} error",
    "{adjective} {noun}",
    "{noun} update for {month}",
    "{noun} not working",
)
