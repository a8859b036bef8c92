# The host refused an ask.
class AskError < StandardError
  attr_reader :error_type

  def initialize(error_type, message)
    super(message)
    @error_type = error_type
  end
end

class ToolRegistryViolation < AskError; end

# The value of a failed call was read, and the program had not checked the outcome.
class CallFailed < AskError; end

module Recurgent
  # An `execute` frame this worker cannot serve; `kind` is the `error_class` of its report.
  class Refusal < StandardError
    attr_reader :kind

    def initialize(kind, message)
      super(message)
      @kind = kind
    end
  end

  # JSON lines on the attempt's socket. Frames from several threads never interleave.
  class Channel
    GETS = IO.instance_method(:gets)
    WRITE = IO.instance_method(:write)
    attr_reader :pid, :frame_bytes

    def initialize(fd)
      @lock, @asks, @frame_bytes = Mutex.new, 0, DEFAULT_FRAME_BYTES
      take_process
      @reader = IO.for_fd(fd, "rb", autoclose: false)
      @writer = IO.for_fd(fd, "wb", autoclose: false)
      @writer.sync = true
    end

    # Lets this process ask, and no forked copy of it.
    def take_process
      @pid = Process.pid
    end

    def synchronize(&block) = @lock.synchronize(&block)

    def receive_execute
      loop do
        size, frame = receive
        next unless frame["op"] == "execute" # else it answers an ask its program gave up on

        @frame_bytes = frame["limits"]["frame_bytes"]
        return size, frame
      end
    end

    def exchange(kind, fields)
      ask_id = @asks += 1
      ask = %({"op":"ask","ask_id":#{ask_id},"kind":"#{kind}"#{fields}})
      refuse("ask") if ask.bytesize >= @frame_bytes
      send_frame(ask)
      size, answer = receive
      size, answer = receive until answer["ask_id"] == ask_id
      refuse("answer") if size > @frame_bytes
      answer
    end

    # A frame goes out whole, even when a timeout fires in the program meanwhile.
    def send_frame(frame)
      line = frame + "\n" # one write is cheaper than two parts
      Thread.handle_interrupt(Object => :never) { WRITE.bind_call(@writer, line) }
    end

    private

    def receive
      line = GETS.bind_call(@reader, "\n")
      Process.exit!(0) unless line&.end_with?("\n") # the host is done with this worker
      [line.bytesize, Recurgent.load(line.force_encoding(Encoding::UTF_8))]
    end

    def refuse(what)
      raise AskError.new("resource_limit", "the #{what} is over #{@frame_bytes} bytes")
    end
  end
end
