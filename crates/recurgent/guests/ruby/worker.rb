module Recurgent
  # Made once, in the zygote, on a channel that leads nowhere; each fork is given its own.
  class Worker
    def initialize(socket)
      @socket, @channel, @output = socket, Channel.new(socket.fileno), Output.new
      forget
    end

    def forget
      @context, @programs = Context.new, Programs.new
    end

    def connect(channel, stdout, stderr)
      @socket.reopen(channel)
      @channel.belong_here
      @output.redirect(stdout, stderr)
    end

    # Exceptions other threads raise in this one are let in only while a program runs.
    def serve
      Thread.handle_interrupt(Object => :never) { loop { serve_one } }
    end

    def serve_one
      size, frame = @channel.receive_execute
      execution = Execution.new(@channel, @context, frame)
      limit = @channel.frame_bytes
      done = size > limit ? Recurgent.oversized(limit) : run(frame, execution)
      (Thread.list - [Thread.current]).each(&:kill)
      @output.restore
      Process.exit!(0) if Process.pid != @channel.pid # forked by the program: it must not send a result
      execution.finish(done.bytesize < limit ? done : Recurgent.oversized(limit))
    end

    private

    def run(frame, execution)
      if frame["ipc_version"] != IPC_VERSION
        raise Refusal.new("UnknownIpcVersion", "this worker speaks version #{IPC_VERSION}")
      end

      @programs.check(frame) # refused frames leave the context's version as it is
      @context.__advance(frame["context"])
      program = @programs.find(frame)
      value, given = Thread.handle_interrupt(Object => :immediate) { program.run(execution) }
      Recurgent.success(value, given, @context)
    rescue Exception => problem
      Recurgent.failure(problem)
    end
  end

  # A worker that has served programs of our own. What warms up with use, such as inline caches, is then written
  # before the fork and stays shared, and not once by every worker.
  def self.rehearse
    host, own = UNIXSocket.pair
    worker = Worker.new(own)
    REHEARSALS.times do |version|
      host.puts(Boundary.encode({
        op: "execute", ipc_version: IPC_VERSION, role: "zygote", method_name: "rehearse",
        code_digest: version.to_s, code: "args[0] + 1", args: [version], kwargs: {},
        context: { version: version, base: version.zero? ? nil : version - 1, set: {}, unset: [] },
        limits: { frame_bytes: DEFAULT_FRAME_BYTES }
      }))
      worker.serve_one
      host.gets
    end
    host.close
    Execution.current = nil
    worker.tap(&:forget)
  end
end
