module Recurgent
  # Whether no process or thread could be started; a socket that would block raises EAGAIN as well. Ruby tells the
  # cases apart in its own messages only.
  FORK_FAILURE = lambda do |problem|
    case problem
    when ThreadError then problem.message.include?("can't create Thread")
    when Errno::EAGAIN then problem.message.match?(/fork|exec|spawn| - \S*\z/)
    else false
    end
  end

  class << self
    # The `done` frame of a program that returned `value`; `result_from` says how.
    def success(value, result_from, context)
      result =
        if Outcome === value
          fields = value.to_h.except(:value)
          %("outcome","outcome":{"value":#{Boundary.encode(value.to_h[:value])},#{Boundary.encode(fields)[1..]})
        else
          %("ok","value":#{Boundary.encode(value)})
        end
      failed = Contacts.current.to_a
      result += %(,"failed_contacts":#{Boundary.encode(failed)}) unless failed.empty?
      %({"op":"done","status":#{result},"result_from":"#{result_from}","context":#{context.__delta}})
    end

    # The `done` frame of a program that ended in the exception `problem`.
    def failure(problem)
      fields = { op: "done", status: "error", error_type: "execution",
                 error_class: class_name(problem), error_message: message_of(problem),
                 location: location_of(problem) }
      fields[:error_message] += Network::ADVICE if Network.off && Network.missing?(problem)
      special = special_fields(problem)
      fields.merge!(ExceptionFacts.of(problem)) if SystemExit === problem || !special.key?(:error_type)
      failed = Contacts.current.to_a
      fields[:failed_contacts] = failed unless failed.empty?
      Boundary.encode(fields.merge(special))
    end

    def oversized(frame_bytes)
      Boundary.encode({ op: "done", status: "error", error_type: "resource_limit",
                        error_class: "FrameTooLarge", limit: "frame", location: nil,
                        error_message: "the frame is over #{frame_bytes} bytes" })
    end

    def class_name(object)
      valid_text(NAME.bind_call(CLASS.bind_call(object)) || "(anonymous class)")
    rescue TypeError # not a Kernel object
      Agent === object ? "Agent" : "BasicObject"
    end

    def valid_text(text) = text.encode("UTF-8", invalid: :replace, undef: :replace).scrub

    # The innermost line of the program that the exception passed through.
    def program_line(problem)
      entry = BACKTRACE.bind_call(problem)&.find { |it| it.start_with?("#{FILE}:") }
      entry && entry[/:(\d+)/, 1].to_i
    end

    private

    # The fields in which this kind of failure differs from a plain `execution` error.
    def special_fields(problem)
      case problem
      when InvalidCode
        line = problem.message[/\A[^\n]*?:(\d+):/, 1]
        { error_type: "invalid_code", error_class: "SyntaxError",
          location: line && { line: line.to_i, column: nil } }
      when NotSerializable then { error_type: "non_serializable_result", path: valid_text(problem.path) }
      when SystemExit then { error_type: "worker_crash", exit: problem.status }
      when SignalException then { error_type: "worker_crash", exit: 128 + problem.signo }
      when NoMemoryError, Errno::ENOMEM then { error_type: "resource_limit", limit: "memory" }
      when Errno::EMFILE, Errno::ENFILE then { error_type: "resource_limit", limit: "files" }
      when Errno::ENOSPC, Errno::EDQUOT then { error_type: "resource_limit", limit: "scratch" }
      when Errno::EFBIG then { error_type: "resource_limit", limit: "file_size" }
      when FORK_FAILURE then { error_type: "resource_limit", limit: "processes" }
      when Refusal then { error_type: "protocol", error_class: problem.kind }
      when CallFailed then {}
      when AskError then { ask_error_type: valid_text(problem.error_type.to_s) }
      else {}
      end
    end

    def message_of(problem)
      valid_text(problem.message.to_s[0, MAX_MESSAGE])
    rescue Exception # a program's own `message`
      "(its message could not be read)"
    end

    def location_of(problem)
      line = program_line(problem)
      line && { line: line, column: nil }
    end
  end
end
