"""What can be typed behind `./motley`: verbs and options as data, and the parser, help and completion made of them."""
