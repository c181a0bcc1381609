from shape_fairseq.command_line import Parser
from shape_fairseq.search import Search


def test_options_go_to_fairseq_and_come_back():
    options = " ".join(Search().options())
    assert options == "--beam 4 --lenpen 0.6 --max-len-a 2 --max-len-b 50"
    parser = Parser()
    Search.add_options(parser)
    search = Search(beam=1, lenpen=-0.5, max_len_a=1.5, max_len_b=7)
    assert Search.from_options(parser.parse_args(search.options())) == search
    assert Search.from_options(parser.parse_args([])) == Search()
