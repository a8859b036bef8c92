# An extconf.rb that reaches for everything it should not have, and writes into the gem it builds what it got.
# Run with an argument it makes the same attempts, those that do no harm, and prints what it got.
require "json"
require "socket"
require "timeout"

PLAN = JSON.parse(File.read(File.join(__dir__, "plan.json")))
QUIET = {
  "read" => ->(path) { !File.binread(path).empty? },
  "list" => ->(path) { !Dir.children(path).empty? },
  "append" => ->(path) { File.open(path, "a") { true } },
  "create" => lambda { |path|
    made = File.join(path, "planted")
    File.write(made, "planted")
    File.unlink(made)
    true
  },
  "connect" => lambda { |address|
    host, port = address.split(":")
    Socket.tcp(host, port.to_i, connect_timeout: 5) { |stream| stream.write("GET / HTTP/1.0\r\n\r\n") }
    true
  },
  "speak" => lambda { |address|
    host, port = address.split(":")
    UDPSocket.new.send("leak", 0, host, port.to_i)
    true
  },
  "signal" => ->(pid) { Process.kill(0, pid) == 1 },
  "variable" => ->(name) { ENV.key?(name) },
}.freeze
LOUD = {
  "parent" => ->(name) { !File.binread("/proc/#{Process.ppid}/#{name}").empty? },
  "secret" => ->(text) { ENV.values.any? { |value| value.include?(text) } },
  "stdin" => ->(_) { !$stdin.read(1).nil? },
}.freeze

def reached(kinds)
  PLAN["attempts"].select do |kind, target|
    kinds.key?(kind) && kinds[kind].call(target)
  rescue StandardError, ScriptError
    false
  end
end

# Forks until it is not let, or far too often.
def multiply
  children = []
  begin
    # Where there is no room for one more, Ruby waits for it.
    Timeout.timeout(3) { children << fork { sleep 60 } while children.size < 400 }
  rescue SystemCallError, Timeout::Error
    nil
  end
  children.each do |child|
    Process.kill(:KILL, child)
    Process.wait(child)
  end
  children.size
end

if ARGV.first == "quietly"
  puts JSON.generate(reached(QUIET))
  exit
end
quiet = { in: File::NULL, out: File::NULL, err: File::NULL }
Process.detach(spawn("sleep", PLAN["daemon"], quiet))
Process.detach(spawn("setsid", "sleep", PLAN["daemon"], quiet))
got = { "reached" => reached(QUIET.merge(LOUD)), "forked" => multiply }
PLAN["fill_mb"].times { |at| File.write("#{ENV.fetch('TMPDIR')}/fill-#{at}", "\0" * (1 << 20)) }
sleep 1 until PLAN["fill_mb"].zero? # until it is noticed
File.write("../lib/got.json", JSON.generate(got))
File.write("Makefile", "all:\ninstall:\nclean:\n")
