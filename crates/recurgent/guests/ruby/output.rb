module Recurgent
  # Restores stdout and stderr, whatever a program did to them. Writes are not buffered: what a program printed
  # before it crashed or was ended is evidence.
  class Output
    def initialize
      @spare = [STDOUT.dup, STDERR.dup]
      @streams = [STDOUT, STDERR]
    end

    def redirect(*streams)
      [@spare, @streams].each { |own| own.zip(streams) { |stream, given| stream.reopen(given) } }
      @streams.each { |stream| stream.sync = true }
    end

    def restore
      [$stdout, $stderr, *@streams].each { |stream| flush(stream) }
      @streams = @streams.each_with_index.map { |stream, index| restore_stream(stream, index) }
      $stdout, $stderr = @streams
    end

    private

    def restore_stream(stream, index)
      stream = IO.for_fd(index + 1, "w", autoclose: false) if stream.closed?
      stream.reopen(@spare[index])
      stream.sync = true
      stream
    end

    def flush(stream)
      stream.flush
    rescue Exception # closed, replaced or broken by the program: then its output is lost
      nil
    end
  end
end
