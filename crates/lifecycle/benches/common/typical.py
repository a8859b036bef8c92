def shelve(title):
    context[title] = ord(title[0].upper()) - 64
    return f"{title} is on shelf {context[title]}"

for catalogue in [delegate("catalogue", purpose="know where books stand")]:
    context["taught"] = args[0]
    catalogue.find = lambda title: ord(title[0].upper()) - 64
result = "taught"

result = f"ask a catalogue to {args[0]}; it needs no teaching"

try:
    numbers = [float(price) for price in args[0]]
    result = {"average": sum(numbers) / len(numbers), "skipped": []}
except ValueError as problem:
    context["last_problem"] = str(problem)
    result = Outcome.error(
        error_type="parse_failed", error_message="a price could not be read", retriable=True
    )

def average(prices):
    numbers, skipped = [], []
    for price in prices:
        try:
            numbers.append(float(price))
        except ValueError:
            skipped.append(price)
    return {"average": sum(numbers) / len(numbers), "skipped": skipped}

context["asked_for"] = args[0]
result = Outcome.error(
    error_type="missing_capability",
    error_message=f"no airline flies to {args[0]}; ask for a city on Earth",
    retriable=True,
)

result = Outcome.error("missing_credentials", f"no card to pay {args[0]} with; configure one", True)

result = Outcome.error("service_unavailable", f"the timetable of {args[0]} does not answer", True)

import os

context["city"] = args[0]
result = {"city": args[0], "key": os.environ["WEATHER_API_KEY"]}

context["guests"] = args[0]
result = {"eggs": 4 * args[0] / 0}

context["guests"] = args[0]
result = Outcome.error("low_utility", "I do not know how many the recipe is for", True)

def scale(guests):
    context["served"] = context.get("served", 0) + guests
    return {"eggs": guests * 2 // 2, "for": guests}

finder = delegate(
    "movie_finder",
    purpose="find films that are on tonight",
    deliverable={
        "type": "object",
        "required": ["films", "provenance"],
        "constraints": {"properties": {"films": {"type": "array", "min_items": 1}}},
    },
)
tonight = finder.tonight("http://localhost/programme.xml")
if tonight.ok:
    result = ", ".join(f"{film['title']} at {film['starts']}" for film in tonight.value["films"])
else:
    result = tonight

import re
from datetime import datetime, timezone
from urllib.request import urlopen

def tonight(url):
    page = urlopen(url, timeout=10).read().decode()
    films = [{"title": title} for title in re.findall(r"<movie>(.*?)</movie>", page)]
    source = {
        "uri": url,
        "fetched_at": datetime.now(timezone.utc).isoformat(),
        "retrieval_tool": "urllib",
        "retrieval_mode": "live",
    }
    return {"films": films, "provenance": {"sources": [source]}}

import re
from datetime import datetime, timezone
from urllib.request import urlopen

def tonight(url):
    page = urlopen(url, timeout=10).read().decode()
    found = re.findall(r"<title>(.*?)</title><starts>(.*?)</starts>", page)
    films = [{"title": title, "starts": starts} for title, starts in found]
    source = {
        "uri": url,
        "fetched_at": datetime.now(timezone.utc).isoformat(),
        "retrieval_tool": "urllib",
        "retrieval_mode": "live",
    }
    return {"films": films, "provenance": {"sources": [source]}}

tonight = tool("movie_finder").tonight("http://localhost/programme.xml")
result = min(tonight.value["films"], key=lambda film: film["starts"])["title"] if tonight.ok else tonight

fetcher = delegate(
    "web_fetcher",
    purpose="fetch a page and say where it came from",
    deliverable={"type": "object", "required": ["body", "provenance"]},
)
parser = delegate(
    "rss_parser",
    purpose="list the headlines of an RSS feed",
    deliverable={"type": "array", "min_items": 1},
)
page = fetcher.fetch_url("http://localhost/google.xml")
headlines = parser.headlines(page.value["body"])
result = {"headlines": headlines.value, "provenance": page.value["provenance"]}

from datetime import datetime, timezone
from urllib.request import urlopen

def fetch_url(url):
    with urlopen(url, timeout=10) as response:
        body = response.read().decode()
    source = {
        "uri": url,
        "fetched_at": datetime.now(timezone.utc).isoformat(),
        "retrieval_tool": "web_fetcher",
        "retrieval_mode": "live",
    }
    return {"body": body, "provenance": {"sources": [source]}}

import re

def headlines(feed):
    return re.findall(r"<item><title>(.*?)</title>", feed)

page = tool("web_fetcher").fetch_url("http://localhost/yahoo.xml")
headlines = tool("rss_parser").headlines(page.value["body"])
result = {"headlines": headlines.value, "provenance": page.value["provenance"]}

page = tool("web_fetcher").fetch_url("http://localhost/nyt.xml")
result = {"headlines": tool("rss_parser").headlines(page.value["body"]).value}

page = tool("web_fetcher").fetch_url("http://localhost/nyt.xml")
headlines = tool("rss_parser").headlines(page.value["body"])
result = {"headlines": headlines.value, "provenance": page.value["provenance"]}

def hours(job):
    return len(job) / 2

def price(job):
    return 80 + 10 * len(job)

