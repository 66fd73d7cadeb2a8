# frozen_string_literal: true

# Random calls with random arguments, the same for the same seed, and what came of them. After
# nonblock_cases.rb.
class NonblockFuzz
  include NonblockCases

  KINDS = %i[pipe unix tcp seqpacket datagram socket udp udp_socket file].freeze
  # Ruby's own methods take a negative length for a huge one, into a buffer that is not: left out.
  LENGTHS = [0, 1, 2, 5, 100, 5000, 70_000, 2.5, 1e30, Float::NAN, nil, true, "5", :five, [], 2**64, -(2**64), Object].freeze
  FLAGS = [0, 0, 0, Socket::MSG_PEEK, Socket::MSG_DONTWAIT, nil, "0", 2**40, :PEEK].freeze
  TEXTS = ["", "a", "text", "x" * 5000, :symbol, 12, nil, [], ["a"], "é".encode("UTF-16LE"), "\xFF", 1.5].freeze
  OPTIONS = [{}, {}, { exception: true }, { exception: false }, { exception: false }, { exception: false },
             { exception: nil }, { exception: :no }, { scm_rights: true }, { exceptions: false }].freeze
  ADDRESSES = [nil, nil, nil, "", "text", 5, :address, []].freeze

  def initialize(seed) = @random = Random.new(seed)

  def run(count) = Array.new(count) { one }

  private

  def pick(list) = list[@random.rand(list.size)]

  def buffer
    case @random.rand(8)
    when 0, 1 then +"old"
    when 2 then "frozen"
    when 3 then NonblockCases::ToStr.new(+"old")
    when 4 then +"x" * 9000
    when 5 then pick([5, :buffer, Object.new.class, []])
    end
  end

  ARGUMENTS = {
    read_nonblock: ->(f) { [f.pick(LENGTHS), f.buffer] }, write_nonblock: ->(f) { [f.pick(TEXTS)] },
    recv_nonblock: ->(f) { [f.pick(LENGTHS), f.pick(FLAGS), f.buffer] }, recvfrom_nonblock: ->(f) { [f.pick(LENGTHS), f.pick(FLAGS), f.buffer] },
    recvmsg_nonblock: ->(f) { [f.pick([nil, 1, 9, 5000, "a", 2.5]), f.pick(FLAGS), f.pick([nil, 0, 100])] },
    sendmsg_nonblock: ->(f) { [f.pick(TEXTS), f.pick([0, nil, "0", 2**40]), f.pick(ADDRESSES)] },
    accept_nonblock: ->(_) { [] }, connect_nonblock: ->(f) { [f.pick(ADDRESSES)] },
  }.freeze

  public :pick, :buffer

  # One pair, and a few calls on it.
  def one
    kind = pick(KINDS)
    given = NonblockCases::NEEDS.fetch(kind).call
    sent = @random.rand(2) == 0
    NonblockCases.try { given[1].syswrite("ab\ncdef\n") } if sent && given[1]
    io = pick(given.first(2))
    calls = Array.new(1 + @random.rand(3)) { call(io) }
    [kind, sent, given.index(io), calls]
  ensure
    given&.each { |one| NonblockCases.try { one.close } }
  end

  def call(io)
    name = pick(ARGUMENTS.keys.select { |method| io.respond_to?(method) })
    arguments = ARGUMENTS.fetch(name).call(self)
    arguments = arguments.first(@random.rand(arguments.size + 1)) if @random.rand(4) == 0
    options = pick(OPTIONS)
    described = arguments.map { |argument| argument.is_a?(Numeric) ? argument.to_s : NonblockCases.plain(argument.is_a?(String) ? argument[0, 20].dup : argument.to_s) }
    result = NonblockCases.try { io.public_send(name, *arguments, **options) }
    left = arguments.grep(String).map { |argument| [argument.bytesize, argument.b[0, 20], argument.encoding.name] }
    result = [:self_or_io, result.class.name] if result.is_a?(IO)
    [name, described, options, NonblockCases.plain(result), left]
  end
end
