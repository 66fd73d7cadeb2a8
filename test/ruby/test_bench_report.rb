# frozen_string_literal: true

require_relative "helper"
require_relative "../../bench/harness/machine"
require_relative "../../bench/harness/page"
require_relative "../../bench/harness/registry"
require_relative "../../bench/harness/statistics"
require_relative "../../bench/harness/table"
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
        "threads" => { title: "Thread.new", kind: :threads, ours: false, floor: false, versions: {}, jit: "off" },
        "async_epoll" => { title: "Async", kind: :scheduler, ours: false, floor: false, versions: { "async" => "2.0" }, jit: "off" },
        "own_calls" => { title: "Eagain.read", kind: :own, ours: true, floor: false, versions: {}, jit: "off" },
        "eagain_epoll" => { title: "Eagain & epoll", kind: :scheduler, ours: true, floor: false, versions: {}, jit: "off" },
        "c_limit" => { title: "C", kind: :floor, ours: false, floor: true, versions: {}, jit: "off" },
        "uringmachine" => { title: "UringMachine", ours: false, floor: false, versions: {}, unavailable: "needs Ruby >= 3.5" }
      },
      rows: {
        "echo" => { title: "an <echo>", group: "Streams and sockets", unit: "round trip", headline: headline, operations: 1_000,
                    left_out: { "libev" => "it & Ruby 3.1" }, peers: peers }
      }
    }
  end

  def aims(peers, aim: { most: 0.8, over: :schedulers }, **row)
    made = report(peers)
    Bench::Aims.of(made[:rows]["echo"].merge(aim: aim, **row), made[:peers])
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

  # Threads are faster here, and another kind of thing.
  def test_an_aim_is_over_the_best_other_scheduler
    peers = { "threads" => result(spread(0.5)), "async_epoll" => result(spread(1.0)), "c_limit" => result(spread(0.1)) }
    { 0.8 => true, 0.81 => false }.each do |wall, met|
      aim, = aims(peers.merge("eagain_epoll" => result(spread(wall))))

      assert_equal({ peer: "eagain_epoll", over: "async_epoll's wall time", ratio: wall, most: 0.8, met: met }, aim)
    end
    assert_empty aims(peers.slice("threads").merge("eagain_epoll" => result(spread(0.1))))
  end

  def test_an_aim_may_be_over_all_others_or_over_one_peer
    peers = { "threads" => result(spread(0.5)), "async_epoll" => result(spread(0.4)), "eagain_epoll" => result(spread(0.45)) }

    assert_equal "async_epoll's wall time", aims(peers, aim: { most: 1.0, over: :others }).first[:over]
    assert_equal({ ratio: 0.9, met: true }, aims(peers, aim: { most: 1.05, over: "threads" }).first.slice(:ratio, :met))
  end

  # Calls of our own are measured by C, and are no part of what unchanged Ruby does.
  def test_calls_of_our_own_are_measured_by_c
    peers = { "async_epoll" => result(spread(1.0)), "own_calls" => result(spread(0.2)), "c_limit" => result(spread(0.1)) }
    aim, *more = aims(peers)

    assert_equal ["c_limit's wall time", false], aim.values_at(:over, :met)
    assert_in_delta 2.0, aim[:ratio]
    assert_empty more
    assert_nil headline(peers).verdict
  end

  def growing(costs)
    sizes = costs.to_h { |size, cost| [size, { cpu: spread(cost), wall: spread(cost), rss: spread(1) }] }
    result(spread(1.0)).merge(sizes: sizes)
  end

  def test_growth_is_what_one_costs_among_the_most_over_what_it_does_among_a_thousand
    sizes = [10, 1_000, 31_000]
    linear = growing(10 => 9e-6, 1_000 => 5e-6, 31_000 => 9e-6)
    knee = growing(10 => 1e-6, 1_000 => 5e-6, 31_000 => 11e-6)

    assert_equal [[1.8, true], [2.2, false]], [linear, knee].map { |it|
      aims({ "eagain_epoll" => it }, sizes: sizes).first.values_at(:ratio, :met).then { |ratio, met| [ratio.round(6), met] }
    }
  end

  def test_what_is_not_met_is_no_less_visible_than_what_is
    made = report({ "async_epoll" => result(spread(1.0)), "eagain_epoll" => result(spread(0.9)) })
    made[:rows]["echo"][:aims] = [{ peer: "eagain_epoll", over: "async_epoll's wall time", ratio: 0.9, most: 0.8, met: false },
                                  { peer: "eagain_uring", over: "async_epoll's wall time", ratio: 0.7, most: 0.8, met: true }]
    table = Bench::Table.new(made).to_s
    page = parse(Bench::Page.new(made).to_s.delete_prefix("<!DOCTYPE html>\n"))

    assert_match(/^Aims: 1 met, 1 NOT MET\necho +eagain_epoll +0.90 +× async_epoll's wall time +aim 0.80 +NOT MET\necho +eagain_uring .* met$/, table)
    ["1 are met, 1 are not met", "0.90 not met", "0.70 met", "eagain_epoll: 0.90 × async_epoll's wall time; the aim of 0.80 is not met"].each do |words|
      assert_includes page, words
    end
  end

  def test_a_chart_of_growth_has_a_line_for_each_peer_and_says_where_it_ends
    made = report({ "async_epoll" => growing(10 => 9e-6, 100 => 8e-6), "threads" => growing(10 => 9e-6).merge(stops_at: 100, stops_because: "no <more>") })
    made[:rows]["echo"].merge!(sizes: [10, 100, 31_000], ends: "a limit")
    page = Bench::Page.new(made).to_s
    text = parse(page.delete_prefix("<!DOCTYPE html>\n"))

    assert_equal 2 * 2, page.scan("<polyline").size
    assert_includes text, "threads ends before 100: no <more>"
    assert_includes text, "Here it ends at 31,000: a limit."
    self_contained(page)
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
     "c_limit failed, round 1: <killed>", "1 ahead, 0 level, 0 behind", "ahead: 0.73 × threads' wall time"].each do |words|
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
                                         "pipes", "idle", "memory_task", "would_block_socket", "growth_tasks")

      assert_predicate status, :success?, errors
      page = File.read(files["html"], encoding: "UTF-8")
      %w[pipes idle memory_task would_block_socket].each { |row| assert_includes page, "<section id=\"#{row}\">" }
      assert_includes page, Bench.row("idle").title
      assert_includes File.read(files["svg"], encoding: "UTF-8"), "would block socket"
      BROWSER ? fits(files["html"], folder) : skip("no browser: the page is not looked at (package chromium)")
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
        return { lines: [...page.querySelectorAll(".growth polyline")].map(line => line.getBoundingClientRect().width),
                 width: page.documentElement.scrollWidth, window: frame.contentWindow.innerWidth,
                 bars: [...page.querySelectorAll("rect.bar")].map(bar => bar.getBoundingClientRect().width) }; })) }</script>
    HTML
    dump, = Open3.capture2(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
                           "--user-data-dir=#{folder}/profile", "--timeout=20000", "--dump-dom", "file://#{probe}", err: File::NULL)
    answer = dump[%r{<pre id="answer">(.+?)</pre>}, 1] or skip "the browser does not run here"
    JSON.parse(answer).each do |frame|
      assert_operator frame["width"], :<=, frame["window"]
      assert_operator frame["bars"].max, :>, frame["window"] * 0.3
      assert_operator frame["bars"].max, :<=, frame["window"]
      assert_includes frame["window"] * 0.3..frame["window"], frame["lines"].max
    end
  end
end
