module Recurgent
  # The contacts with services that failed in one `execute`, by the place that was contacted. The program may handle a
  # failure and report an error of its own, so the worker reports them to the host. A failure is forgotten when the
  # same place is reached later.
  class Contacts
    MAX_FAILED = 16
    ERROR_STATUS = 400

    class << self
      def current = Execution.current&.contacts || new

      # Runs a block that contacts a place. What it contacts for that is the same place.
      def watch(place)
        outer = Thread.current[:recurgent_place]
        place = Thread.current[:recurgent_place] = outer || place
        reached = yield
        current.succeed(place) unless reached == :wait_writable # of a socket that does not block
        reached
      rescue IO::WaitReadable, IO::WaitWritable
        raise
      rescue SystemCallError, SocketError, IOError, Timeout::Error => problem
        current.fail(place, **ExceptionFacts.link_facts(problem))
        raise
      ensure
        Thread.current[:recurgent_place] = outer
      end
    end

    def initialize
      @failed = {}
      @place = "service"
    end

    def fail(place, **facts)
      place = place_named(place)
      @failed[place] = facts if @failed.key?(place) || @failed.size < MAX_FAILED
    end

    def succeed(place)
      @failed.delete(@place = place_named(place))
    end

    # A response of the place that was connected to last.
    def answered(status)
      status < ERROR_STATUS ? @failed.delete(@place) : fail(@place, http_status: status)
    end

    def cut_off(problem) = fail(@place, **ExceptionFacts.link_facts(problem))

    def to_a = @failed.map { |place, facts| { place: place, **facts } }

    private

    def place_named(place) = Recurgent.valid_text(place.to_s)[0, MAX_PATH]
  end

  # What is prepended to the classes of Ruby's library that contact services.
  module WatchedTCPSocket
    def initialize(host, port, *rest, **options)
      Contacts.watch(Recurgent.place_at(host, port)) { super }
    end
  end

  module WatchedSocket
    def initialize(*) = Contacts.watch("network") { super } # it is off

    def connect(address) = Contacts.watch(Recurgent.place_of(address)) { super }

    def connect_nonblock(address, exception: true) = Contacts.watch(Recurgent.place_of(address)) { super }
  end

  module WatchedSockets
    # With a block the connection is used before this returns.
    def tcp(host, port, *rest, **options, &block)
      block ? super : Contacts.watch(Recurgent.place_at(host, port)) { super }
    end
  end

  # The method of the program that runs, or that called what runs.
  def self.program_method = caller_locations.find { |it| it.path == FILE }&.base_label

  def self.place_of(address)
    address = Addrinfo.new(address) unless address.is_a?(Addrinfo)
    address.ip? ? place_at(*address.ip_unpack) : address.inspect_sockaddr
  end

  def self.place_at(host, port) = host.to_s.include?(":") ? "[#{host}]:#{port}" : "#{host}:#{port}"

  module WatchedConnection
    private

    def rbuf_fill
      super
    rescue SystemCallError, IOError, Timeout::Error => problem
      Contacts.current.cut_off(problem)
      raise
    end
  end

  module WatchedResponse
    def initialize(version, status, *rest)
      super
      number = status.to_i
      return unless number.between?(100, 599)

      Execution.current&.received(number, Recurgent.program_method)
      Contacts.current.answered(number)
    end
  end

  TCPSocket.prepend(WatchedTCPSocket)
  Socket.prepend(WatchedSocket)
  Socket.singleton_class.prepend(WatchedSockets)
end

# Defined before `net/http` is loaded, which adds to them.
module Net
  class BufferedIO
    prepend Recurgent::WatchedConnection
  end

  class HTTPResponse
    prepend Recurgent::WatchedResponse
  end
end
