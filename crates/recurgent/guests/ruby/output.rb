module Recurgent
  # stdout and stderr, put back however a program left them.
  class Output
    def initialize
      @spare = [STDOUT.dup, STDERR.dup]
      @streams = [STDOUT, STDERR]
    end

    def take(*streams)
      [@spare, @streams].each { |own| own.zip(streams) { |stream, given| stream.reopen(given) } }
    end

    def settle
      [$stdout, $stderr, *@streams].each { |stream| flush(stream) }
      @streams = @streams.each_with_index.map { |stream, index| restored(stream, index) }
      $stdout, $stderr = @streams
    end

    private

    def restored(stream, index)
      stream = IO.for_fd(index + 1, "w", autoclose: false) if stream.closed?
      stream.reopen(@spare[index])
    end

    def flush(stream)
      stream.flush
    rescue Exception # closed, replaced or broken by the program: then its output is lost
      nil
    end
  end
end
