# frozen_string_literal: true

require_relative "helper"
require_relative "../../bench/harness/machine"
require_relative "../../bench/harness/page"
require_relative "../../bench/harness/registry"
require "json"
require "open3"
require "rbconfig"
require "tmpdir"

# What bench/run writes for people: the page and the chart.
class TestBenchReport < Minitest::Test
  RUN = File.expand_path("../../bench/run", __dir__)
  BROWSER = %w[chromium chromium-browser google-chrome].flat_map do |name|
    ENV.fetch("PATH", "").split(":").map { |folder| File.join(folder, name) }
  end.find { |file| File.executable?(file) }

  def spread(min, median = min, max = min)
    { median: median, min: min, max: max }
  end

  def result(wall, **more)
    { samples: [], failures: [], wall: wall, cpu: wall, rss: spread(20 << 20), calls: nil, **more }
  end

  # A report as Runner#run returns it, without a run.
  def report(peers, headline: "wall")
    {
      date: "2026-01-01T00:00:00Z", revision: "abc", machine: Bench::Machine.describe, ruby: Bench::Machine.ruby,
      options: { rounds: 3, scale: 1.0 }, missing: { "http_wrk" => "wrk is <not> installed" },
      peers: {
        "threads" => { title: "Thread.new", ours: false, floor: false, versions: {}, jit: "off" },
        "eagain_epoll" => { title: "Eagain & epoll", ours: true, floor: false, versions: {}, jit: "off" },
        "c_limit" => { title: "C", ours: false, floor: true, versions: {}, jit: "off" },
        "uringmachine" => { title: "UringMachine", ours: false, floor: false, versions: {}, unavailable: "needs Ruby >= 3.5" }
      },
      rows: {
        "echo" => { title: "an <echo>", group: "Streams and sockets", unit: "round trip", headline: headline, operations: 1_000,
                    left_out: { "libev" => "it & Ruby 3.1" }, peers: peers }
      }
    }
  end

  def headline(peers, figure = "wall")
    made = report(peers, headline: figure)
    Bench::Headline.new(made[:rows]["echo"], made[:peers])
  end

  def test_ahead_and_behind_are_what_no_round_contradicts
    other = result(spread(1.0, 1.1, 1.2))
    { spread(0.7, 0.8, 0.9) => :ahead, spread(0.9, 0.95, 1.05) => :level, spread(1.1, 1.3, 1.5) => :level,
      spread(1.3, 1.4, 1.5) => :behind }.each do |ours, verdict|
      found = headline({ "threads" => other, "eagain_epoll" => result(ours), "c_limit" => result(spread(0.1)) })

      assert_equal verdict, found.verdict, ours.inspect
      assert_in_delta ours[:median] / 1.1, found.ratio
    end
  end

  def test_nothing_is_said_of_a_row_without_another_peer
    assert_nil headline({ "eagain_epoll" => result(spread(1.0)), "c_limit" => result(spread(0.1)) }).verdict
    assert_nil headline({ "threads" => result(spread(1.0)) }).verdict
  end

  def test_a_row_is_judged_by_its_own_figure
    slow = result(spread(2.0), latency: { p50: spread(0.1), p99: spread(0.2) })
    fast = result(spread(1.0), latency: { p50: spread(0.2), p99: spread(0.8) })

    assert_in_delta 0.25, headline({ "threads" => fast, "eagain_epoll" => slow }, "p99").ratio
  end

  def test_figures_have_three_digits_and_a_unit
    assert_equal ["1.23 s", "45.6 ms", "789 µs", "1.00 ms", "12.0 ns"],
                 [1.234, 0.04561, 0.000789, 0.0009999, 1.2e-8].map { |value| Bench::Figure.seconds(value) }
    assert_equal ["12.3 KiB", "1.50 MiB", "100 bytes"], [12_595, 1_572_864, 100].map { |value| Bench::Figure.bytes(value) }
    assert_equal %w[1,234,567 999 1,000], [1_234_567, 999, 1_000].map { |value| Bench::Figure.count(value) }
  end

  def test_the_page_is_well_formed_and_names_what_is_missing
    peers = { "threads" => result(spread(1.0, 1.1, 1.2)), "eagain_epoll" => result(spread(0.7, 0.8, 0.9)),
              "c_limit" => result(nil).merge(cpu: nil, failures: ["round 1: <killed>"]) }
    page = Bench::Page.new(report(peers)).to_s
    text = parse(page.delete_prefix("<!DOCTYPE html>\n"))

    ["an <echo>", "row http_wrk: wrk is <not> installed", "uringmachine: needs Ruby >= 3.5", "libev is left out: it & Ruby 3.1",
     "c_limit failed, round 1: <killed>", "1 ahead, 0 level, 0 behind", "ahead: 0.73 of threads’s wall time"].each do |words|
      assert_includes text, words
    end
    self_contained(page)
  end

  def test_the_chart_stands_alone
    peers = { "threads" => result(spread(1.0)), "eagain_epoll" => result(spread(1.5)) }
    chart = Bench::SummaryChart.new(report(peers)).standalone

    assert_includes parse(chart), "1.50"
    self_contained(chart)
  end

  def test_a_run_writes_them
    Dir.mktmpdir do |folder|
      files = %w[html svg].to_h { |format| [format, File.join(folder, "report.#{format}")] }
      _, errors, status = Open3.capture3(RbConfig.ruby, RUN, "--scale", "0.003", "--rounds", "1", "--no-strace",
                                         "--peers", "threads,eagain_epoll,stock,eagain_try", *files.flat_map { |f, p| ["--#{f}", p] },
                                         "pipes", "idle", "memory_task", "would_block_socket")

      assert_predicate status, :success?, errors
      page = File.read(files["html"], encoding: "UTF-8")
      %w[pipes idle memory_task would_block_socket].each { |row| assert_includes page, "<section id=\"#{row}\">" }
      assert_includes page, Bench.row("idle").title
      assert_includes File.read(files["svg"], encoding: "UTF-8"), "would block socket"
      fits(files["html"], folder) if BROWSER
    end
  end

  # All elements' text. Skips where Ruby came without its XML parser.
  def parse(markup)
    require "rexml/document"
    texts = []
    REXML::XPath.each(REXML::Document.new(markup), "//text()") { |text| texts << text.value }
    texts.join
  rescue LoadError
    skip "rexml not installed"
  end

  def self_contained(markup)
    outside = markup.gsub('xmlns="http://www.w3.org/2000/svg"', "")
    refute_match(%r{https?://|//\w|<script|<link|<img|src=|url\(|@import}, outside)
  end

  # On a phone and on a desk nothing is wider than the window, and bars are as long as they should be.
  def fits(page, folder)
    probe = File.join(folder, "probe.html")
    File.write(probe, <<~HTML)
      <iframe src="#{File.basename(page)}" width="360" height="800"></iframe><iframe src="#{File.basename(page)}" width="1100" height="800"></iframe>
      <pre id="answer"></pre>
      <script>onload = () => { answer.textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(frame => {
        let page = frame.contentDocument;
        return { width: page.documentElement.scrollWidth, window: frame.contentWindow.innerWidth,
                 bars: [...page.querySelectorAll("rect.bar")].map(bar => bar.getBoundingClientRect().width) }; })) }</script>
    HTML
    dump, = Open3.capture2(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
                           "--user-data-dir=#{folder}/profile", "--timeout=20000", "--dump-dom", "file://#{probe}", err: File::NULL)
    answer = dump[%r{<pre id="answer">(.+?)</pre>}, 1] or skip "the browser does not run here"
    JSON.parse(answer).each do |frame|
      assert_operator frame["width"], :<=, frame["window"]
      assert_operator frame["bars"].max, :>, frame["window"] * 0.3
      assert_operator frame["bars"].max, :<=, frame["window"]
    end
  end
end
