def shelve(title)
  context[title] = title[0].upcase.ord - 64
  "#{title} is on shelf #{context[title]}"
end

[delegate("catalogue", purpose: "know where books stand")].each do |catalogue|
  context[:taught] = args[0]
  catalogue.define_singleton_method(:find) { |title| title[0].upcase.ord - 64 }
end
"taught"

"ask a catalogue to #{args[0]}; it needs no teaching"

begin
  numbers = args[0].map { |price| Float(price) }
  result = { average: numbers.sum / numbers.size, skipped: [] }
rescue ArgumentError => problem
  context[:last_problem] = problem.message
  result = Outcome.error(
    error_type: "parse_failed", error_message: "a price could not be read", retriable: true
  )
end

def average(prices)
  numbers, skipped = prices.partition { |price| Float(price, exception: false) }
  { average: numbers.sum { |price| Float(price) } / numbers.size, skipped: skipped }
end

context[:asked_for] = args[0]
result = Outcome.error(
  error_type: "missing_capability",
  error_message: "no airline flies to #{args[0]}; ask for a city on Earth",
  retriable: true
)

Outcome.error("missing_credentials", "no card to pay #{args[0]} with; configure one", true)

Outcome.error("service_unavailable", "the timetable of #{args[0]} does not answer", true)

context[:city] = args[0]
{ city: args[0], key: ENV.fetch("WEATHER_API_KEY") }

context[:guests] = args[0]
result = { eggs: 4 * args[0] / 0 }

context[:guests] = args[0]
result = Outcome.error("low_utility", "I do not know how many the recipe is for", true)

def scale(guests)
  context[:served] = context.fetch(:served, 0) + guests
  { eggs: guests * 2 / 2, for: guests }
end

finder = delegate(
  "movie_finder",
  purpose: "find films that are on tonight",
  deliverable: {
    type: "object",
    required: ["films", "provenance"],
    constraints: { properties: { films: { type: "array", min_items: 1 } } }
  }
)
tonight = finder.tonight("http://localhost/programme.xml")
result =
  if tonight.ok?
    tonight.value["films"].map { |film| "#{film["title"]} at #{film["starts"]}" }.join(", ")
  else
    tonight
  end

require "net/http"
require "time"

def tonight(url)
  page = Net::HTTP.get(URI(url))
  films = page.scan(%r{<movie>(.*?)</movie>}).map { |title,| { title: title } }
  source = { uri: url, fetched_at: Time.now.utc.iso8601, retrieval_tool: "net/http", retrieval_mode: "live" }
  { films: films, provenance: { sources: [source] } }
end

require "net/http"
require "time"

def tonight(url)
  page = Net::HTTP.get(URI(url))
  found = page.scan(%r{<title>(.*?)</title><starts>(.*?)</starts>})
  films = found.map { |title, starts| { title: title, starts: starts } }
  source = { uri: url, fetched_at: Time.now.utc.iso8601, retrieval_tool: "net/http", retrieval_mode: "live" }
  { films: films, provenance: { sources: [source] } }
end

tonight = tool("movie_finder").tonight("http://localhost/programme.xml")
result = tonight.ok? ? tonight.value["films"].min_by { |film| film["starts"] }["title"] : tonight

fetcher = delegate(
  "web_fetcher",
  purpose: "fetch a page and say where it came from",
  deliverable: { type: "object", required: ["body", "provenance"] }
)
parser = delegate(
  "rss_parser",
  purpose: "list the headlines of an RSS feed",
  deliverable: { type: "array", min_items: 1 }
)
page = fetcher.fetch_url("http://localhost/google.xml")
headlines = parser.headlines(page.value["body"])
result = { headlines: headlines.value, provenance: page.value["provenance"] }

require "net/http"
require "time"

def fetch_url(url)
  body = Net::HTTP.get(URI(url)).force_encoding("UTF-8")
  source = { uri: url, fetched_at: Time.now.utc.iso8601, retrieval_tool: "web_fetcher", retrieval_mode: "live" }
  { body: body, provenance: { sources: [source] } }
end

def headlines(feed)
  feed.scan(%r{<item><title>(.*?)</title>}).flatten
end

page = tool("web_fetcher").fetch_url("http://localhost/yahoo.xml")
headlines = tool("rss_parser").headlines(page.value["body"])
result = { headlines: headlines.value, provenance: page.value["provenance"] }

page = tool("web_fetcher").fetch_url("http://localhost/nyt.xml")
result = { headlines: tool("rss_parser").headlines(page.value["body"]).value }

page = tool("web_fetcher").fetch_url("http://localhost/nyt.xml")
headlines = tool("rss_parser").headlines(page.value["body"])
result = { headlines: headlines.value, provenance: page.value["provenance"] }

estimator = delegate("estimator", purpose: "estimate hours of work")
hours = estimator.hours(args[0]).value
context[:last_estimate] = hours
result = hours * context.fetch(:hourly_rate)

def hours(job)
  job.size / 2.0
end

def price(job)
  80 + 10 * job.size
end

estimator = delegate("estimator", purpose: "estimate hours of work")
result = format("%g hours", estimator.hours(args[0]).value)

def polish(thing)
  "shiny #{thing}"
end

context[:ledger][args[0]] -= args[2]
context[:audit] = ["took #{args[2]}"]
context.delete(:open)
context[:ledger][args[1]] += args.fetch(3)

def transfer(sender, receiver, amount)
  ledger = context[:ledger]
  ledger[sender] -= amount
  ledger[receiver] += amount
  ledger
end

context[:tools].keys.sort

[args[0]]

