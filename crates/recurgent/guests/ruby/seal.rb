module Recurgent
  # What the host has a worker do to itself: a list of system calls (specs/worker-protocol.md).
  class Seal
    OPENAT = 257 # on x86-64

    def initialize(steps)
      @kept = []
      @steps = steps.map { |number, *arguments| [number, arguments.map { |it| argument(it) }] }
    end

    def apply(ruleset)
      known = { "ruleset" => ruleset&.fileno }
      @steps.each do |number, arguments|
        result = syscall(number, *arguments.map { |it| it.is_a?(Hash) ? known[it["the"]] : it })
        known["opened"] = result if number == OPENAT
      end
    end

    private

    def argument(given)
      case given
      when String then address(bytes(given))
      when Array then address(bytes(given.first) + [address(bytes(given.last))].pack("J"))
      else given
      end
    end

    def address(content)
      @kept << content # what is pointed to must stay
      [content].pack("P").unpack1("J")
    end

    def bytes(hex) = [hex].pack("H*")
  end
end
